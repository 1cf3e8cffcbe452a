/** Registers the list of runs. */
import { registerPage } from "../registry";
import { RunsPage } from "./RunsPage";
import "./runs.css";

registerPage({ pattern: "runs", component: RunsPage, nav: { label: "Runs", icon: "runs", group: "work", order: 1, keys: "g r" } });
