/** Starts the console. */
import { render } from "preact";
import "./style/index.css";
import "./pages/index";
import { watchFeed } from "./api/feed";
import { watchSession } from "./api/session";
import { App } from "./app";
import { watchApprovals } from "./pages/approvals/watch";
import { showPlainTexts } from "./ui/plain";
import { apply } from "./ui/theme";

showPlainTexts();
apply();
watchSession();
watchFeed();
watchApprovals();
const root = document.getElementById("app");
if (root) render(<App />, root);
