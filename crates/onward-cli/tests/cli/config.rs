//! Settings: precedence, and errors of invalid ones.

use std::path::Path;

use crate::dev::serve;
use crate::kit::{Ran, one_order, onward, ran};

/// Returns value and origin of a setting from `config show --json`.
fn origin(ran: &Ran, name: &str) -> (String, String) {
    let shown: serde_json::Value = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{}{}", ran.out, ran.err));
    let setting = shown["settings"].as_array().unwrap().iter().find(|setting| setting["name"] == name).unwrap();
    let text = |field: &str| setting[field].as_str().unwrap_or("-").to_owned();
    (text("value"), text("origin"))
}

fn show(directory: &Path) -> std::process::Command {
    let mut command = onward();
    command.args(["config", "show", "--json"]).current_dir(directory);
    command
}

#[test]
fn a_flag_beats_the_environment_beats_the_file_beats_the_default() {
    let folder = tempfile::tempdir().unwrap();
    let output = ran(&mut show(folder.path()));
    assert_eq!(origin(&output, "data"), ("./onward-data".to_owned(), "default".to_owned()));
    assert_eq!(origin(&output, "url"), ("-".to_owned(), "-".to_owned()));
    std::fs::write(folder.path().join("onward.toml"), "\ndata = \"runs\"\n[limits]\nstreams_max = 9\n").unwrap();
    let output = ran(&mut show(folder.path()));
    assert_eq!(origin(&output, "data"), ("runs".to_owned(), "onward.toml:2".to_owned()));
    assert_eq!(origin(&output, "limits.streams_max"), ("9".to_owned(), "onward.toml:4".to_owned()));
    let output = ran(show(folder.path()).env("ONWARD_DATA", "other").env("ONWARD_LIMITS__STREAMS_MAX", "8"));
    assert_eq!(origin(&output, "data"), ("other".to_owned(), "ONWARD_DATA".to_owned()));
    assert_eq!(origin(&output, "limits.streams_max").1, "ONWARD_LIMITS__STREAMS_MAX");
    let output = ran(show(folder.path()).env("ONWARD_DATA", "other").args(["--data", "third"]));
    assert_eq!(origin(&output, "data"), ("third".to_owned(), "--data".to_owned()));
}

#[test]
fn the_file_is_the_named_one_or_the_one_here_or_the_users() {
    let (here, user) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::create_dir(user.path().join("onward")).unwrap();
    std::fs::write(user.path().join("onward/onward.toml"), "namespace = \"users\"\nkey_file = \"my.key\"\n").unwrap();
    let mut show = show(here.path());
    show.env("XDG_CONFIG_HOME", user.path());
    let output = ran(&mut show);
    assert_eq!(origin(&output, "namespace").0, "users");
    let beside = user.path().join("onward/my.key").to_string_lossy().into_owned();
    assert_eq!(origin(&output, "key_file").0, beside, "paths are relative to the file");
    std::fs::write(here.path().join("onward.toml"), "namespace = \"here\"\n").unwrap();
    assert_eq!(origin(&ran(&mut show), "namespace").0, "here");
    let named = here.path().join("named.toml");
    std::fs::write(&named, "namespace = \"named\"\n").unwrap();
    assert_eq!(origin(&ran(show.env("ONWARD_CONFIG", &named)), "namespace").0, "named");
    let output = ran(show.args(["--config", "/nonexistent.toml"]));
    assert_eq!(output.code, 1);
    assert!(output.err.contains("cannot read the settings in /nonexistent.toml"), "{}", output.err);
}

#[test]
fn an_unknown_command_exits_with_2_and_a_suggestion() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("onward.toml");
    let run_with_config = |text: &str, args: &[&str]| {
        std::fs::write(&file, text).unwrap();
        ran(onward().args(args).current_dir(folder.path()))
    };
    run_with_config("[server]\nlistn = \"127.0.0.1:1\"\n", &["run", "list"]).assert_output(
        2,
        "! error[config_invalid]: onward.toml:2: unknown setting `server.listn`\n! hint: did you mean `server.listen`?",
    );
    run_with_config("[limits]\nstreams_max = 0\n", &["dev", "--ephemeral", "--port", "0"]).assert_output(
        2,
        "! error[config_invalid]: invalid setting `limits.streams_max` = `0` from onward.toml:2: must be an integer greater than 0\n! hint: see `onward config show --origin` for all settings and their origins",
    );
    run_with_config("[log]\nlevel = \"loud\"\n", &["dev", "--ephemeral", "--port", "0"]).assert_output(
        2,
        "! error[config_invalid]: invalid setting `log.level` = `loud` from onward.toml:2: must be one of error, warn, info, debug\n! hint: see `onward config show --origin` for all settings and their origins",
    );
    let broken = run_with_config("url = \n", &["run", "list"]);
    assert!(broken.err.starts_with("error[config_invalid]: onward.toml:1: "), "{}", broken.err);
    let secret = run_with_config("key = \"onw_id_SECRET_x\"\n", &["run", "list"]);
    assert!(secret.code == 2 && !secret.err.contains("SECRET"), "{}", secret.err);
}

#[test]
fn secrets_are_masked() {
    let output = ran(onward().args(["config", "show", "--origin"]).env("ONWARD_KEY", "onw_abc_SECRET_1234"));
    assert!(output.out.contains("onw_abc_********") && !output.out.contains("SECRET"), "{}", output.out);
    assert!(output.out.contains("ONWARD_KEY\n"), "{}", output.out);
}

#[test]
fn a_server_and_its_clients_find_each_other_by_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let file = folder.path().join("onward.toml");
    let settings = format!(
        "url = \"http://{address}\"\ndata = \"runs\"\n[server]\nlisten = \"{address}\"\n[limits]\nheader_timeout = \"7s\"\n"
    );
    std::fs::write(&file, settings).unwrap();
    let served = serve(onward().arg("server").current_dir(folder.path()));
    assert_eq!(served.address, address.to_string());
    ran(onward().args(["run", "start", "hello", "--id", "a"]).current_dir(folder.path())).assert_output(0, "a: started");
    assert!(folder.path().join("runs/onward.db").exists());
    drop(served);
    assert_eq!(ran(onward().args(["run", "list"]).current_dir(folder.path())).code, 5, "the server comes before the directory");
    let output = ran(onward().args(["run", "list", "--data", "runs"]).current_dir(folder.path()));
    assert!(output.out.contains("hello"), "a flag comes before the file: {}{}", output.out, output.err);
}

#[test]
fn a_server_in_the_environment_comes_before_a_directory_there() {
    let directory = one_order("order-1");
    let list = |command: &mut std::process::Command| ran(command.args(["run", "list"]).env("ONWARD_URL", "http://127.0.0.1:1"));
    assert_eq!(list(onward().env("ONWARD_DATA", directory.path())).code, 5);
    assert_eq!(list(onward().arg("--data").arg(directory.path())).code, 0);
    let both = ran(onward().args(["run", "list", "--server", "http://x", "--data", "y"]));
    assert_eq!(both.code, 2);
    let key = ran(onward().args(["key", "list", "--server", "http://x"]));
    assert!(key.code == 2 && key.err.contains("`onward key` works on local files"), "{}", key.err);
    let folder = tempfile::tempdir().unwrap();
    let webhook =
        ran(onward().args(["webhook", "create", "h", "--start", "k", "--server", "http://x"]).current_dir(folder.path()));
    assert!(webhook.code == 2 && webhook.err.contains("`onward webhook` works on local files"), "{}", webhook.err);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was written");
}

#[test]
fn a_misspelt_variable_is_reported_and_those_of_others_are_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let output = ran(show(folder.path()).env("ONWARD_LIMITS__CONNECTION_MAX", "5"));
    let text = output.out + &output.err;
    assert!(text.contains("config_invalid") && text.contains("ONWARD_LIMITS__CONNECTIONS_MAX"), "{text}");
    let output = ran(onward().args(["run", "list"]).current_dir(folder.path()).env("ONWARD_NAMESPCE", "x"));
    output.assert_output(
        2,
        "! error[config_invalid]: unknown setting ONWARD_NAMESPCE in the environment\n! hint: did you mean ONWARD_NAMESPACE?",
    );
    let output = ran(show(folder.path()).env("ONWARD_CHECK", "1").env("ONWARD_LIMITS__CONNECTIONS_MAX", "5"));
    assert_eq!(origin(&output, "limits.connections_max").0, "5");
}

/// `config show` fails with the same error as the command that uses the value.
#[test]
fn an_unusable_setting_is_reported_where_it_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    for (name, value, uses) in [
        ("ONWARD_LIMITS__CONNECTIONS_MAX", "-1", &["dev", "--ephemeral", "--port", "0"][..]),
        ("ONWARD_LIMITS__IDLE_TIMEOUT", "soon", &["dev", "--ephemeral", "--port", "0"]),
        ("ONWARD_DEV__PORT", "abc", &["dev", "--ephemeral"]),
        ("ONWARD_LOG__LEVEL", "foo", &["dev", "--ephemeral", "--port", "0"]),
        ("ONWARD_SERVER__LISTEN", "here", &["server", "--store", "memory:"]),
        ("ONWARD_SERVER__STORE", "cards:", &["server"]),
        ("ONWARD_URL", "ftp://x", &["run", "list"]),
        ("ONWARD_NAMESPACE", "a\nb", &["run", "list"]),
    ] {
        let used = ran(onward().args(uses).current_dir(folder.path()).env(name, value));
        let shown = ran(onward().args(["config", "show"]).current_dir(folder.path()).env(name, value));
        assert!(shown.code == 2 && shown.out.contains("SETTING"), "{name}: {}{}", shown.out, shown.err);
        assert!(used.err.starts_with("error[") && shown.err.ends_with(&used.err), "{name}: {}{}", used.err, shown.err);
        let json = ran(show(folder.path()).env(name, value));
        assert_eq!(json.code, 2);
        let problem: serde_json::Value = serde_json::from_str(&json.err).unwrap();
        assert!(used.err.contains(problem["code"].as_str().unwrap()), "{problem}");
    }
}

/// The URL of a database may contain its password.
#[test]
fn the_password_of_a_database_is_never_shown() {
    let folder = tempfile::tempdir().unwrap();
    let mut show = onward();
    show.args(["config", "show", "--json"]).current_dir(folder.path());
    let shown = ran(show.env("ONWARD_SERVER__STORE", "postgres://me:geheim@host/runs"));
    assert_eq!(shown.code, 0, "{}", shown.err);
    assert!(shown.out.contains("postgres://host/runs") && !shown.out.contains("geheim"), "{}", shown.out);
}

/// A missing secret in a deployment.
#[test]
fn an_empty_store_is_reported_and_no_directory_is_made_in_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let output = ran(onward().arg("server").current_dir(folder.path()).env("ONWARD_SERVER__STORE", ""));
    assert!(output.code == 2 && output.err.contains("ONWARD_SERVER__STORE is set but empty"), "{}", output.err);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was written");
}
