/** Owns which pages the console has. A new page needs one line here. */
import "./runs/index";
import "./run/index";
import "./approvals/index";
import "./operations/index";
import "./queues/index";
import "./flows/index";
import "./schedules/index";
import "./login/index";
