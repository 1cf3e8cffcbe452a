/** Registers the sign-in. */
import { registerPage } from "../registry";
import { LoginPage } from "./LoginPage";
import "./login.css";

registerPage({ pattern: "login", component: LoginPage, isPublic: true });
