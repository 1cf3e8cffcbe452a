/** Owns the registration of the page of one run. */
import { registerPage } from "../registry";
import { RunPage } from "./RunPage";
import "./tabs.css";
import "./run.css";
import "./rows.css";
import "../conversation/panels.css";
import "../conversation/conversation.css";

registerPage({ pattern: "runs/:id/:tab?", component: RunPage, under: "runs" });
