/** Registers the inbox of approvals. */
import { registerPage } from "../registry";
import { ApprovalsPage } from "./ApprovalsPage";
import "./approvals.css";

registerPage({ pattern: "approvals", component: ApprovalsPage, nav: { label: "Approvals", icon: "approvals", group: "work", order: 2, keys: "g a" } });
