/** Registers the operations pages. Later pages (schedules, flows, limits) add a line here or register themselves. */
import { registerPage } from "../registry";
import { KindsPage } from "./Kinds";
import { ServersPage } from "./Servers";
import { SpendPage } from "./Spend";
import { WorkersPage } from "./Workers";
import "./operations.css";

const group = "operations" as const;
registerPage({ pattern: "workers", component: WorkersPage, nav: { label: "Workers", icon: "workers", group, order: 10, keys: "g w" } });
registerPage({ pattern: "kinds", component: KindsPage, nav: { label: "Kinds", icon: "kinds", group, order: 12, keys: "g k" } });
registerPage({ pattern: "servers", component: ServersPage, nav: { label: "Servers", icon: "servers", group, order: 13, keys: "g s" } });
registerPage({ pattern: "spend", component: SpendPage, nav: { label: "Spend", icon: "spend", group, order: 14, keys: "g m" } });
