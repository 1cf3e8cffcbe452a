/** Registers the pages of flows. */
import { registerPage } from "../registry";
import { FlowPage } from "./FlowPage";
import { FlowsPage } from "./FlowsPage";
import "./flows.css";

registerPage({ pattern: "flows", component: FlowsPage, nav: { label: "Flows", icon: "branch", group: "operations", order: 12.5, keys: "g f" } });
registerPage({ pattern: "flows/:name", component: FlowPage, under: "flows" });
