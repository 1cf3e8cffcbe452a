/** Registers the pages of queues. */
import { registerPage } from "../registry";
import { QueuePage } from "./QueuePage";
import { QueuesPage } from "./QueuesPage";
import "./queues.css";

registerPage({ pattern: "queues", component: QueuesPage, nav: { label: "Queues", icon: "queues", group: "operations", order: 11, keys: "g q" } });
registerPage({ pattern: "queues/:name", component: QueuePage, under: "queues" });
