/** Registers the pages of schedules. */
import { registerPage } from "../registry";
import { SchedulePage } from "./SchedulePage";
import { SchedulesPage } from "./SchedulesPage";
import "./schedules.css";

registerPage({ pattern: "schedules", component: SchedulesPage, nav: { label: "Schedules", icon: "schedules", group: "operations", order: 12.7, keys: "g c" } });
registerPage({ pattern: "schedules/:id", component: SchedulePage, under: "schedules" });
