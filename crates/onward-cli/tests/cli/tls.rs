//! `onward server` with a certificate.

use std::path::Path;

use onward::prelude::*;
use onward::{Onward, RunHandle};

use crate::dev::serve;
use crate::kit::{onward, ran};

/// Writes a self-signed certificate and its key.
fn write_files(directory: &Path) -> String {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(directory.join("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(directory.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    made.cert.pem()
}

#[test]
fn a_server_with_a_certificate_is_worked_for_over_https() {
    let directory = tempfile::tempdir().unwrap();
    let root = write_files(directory.path());
    let mut command = onward();
    command.args(["server", "--store", "memory:", "--listen", "127.0.0.1:0"]);
    // The certificate by flag, the key by environment variable.
    command.arg("--tls-cert").arg(directory.path().join("cert.pem")).env("ONWARD_TLS_KEY", directory.path().join("key.pem"));
    let mut served = serve(&mut command);
    let port = served.url.strip_prefix("https://127.0.0.1:").expect("it says https").to_owned();
    let tokio = tokio::runtime::Runtime::new().unwrap();
    let greeting = tokio.block_on(async {
        let onward = Onward::connect(format!("https://localhost:{port}"))
            .root_certificate(root)
            .workflow("greet", async |_: Ctx, name: String| Ok(format!("hello {name}")));
        let onward = onward.start().await.unwrap();
        let run: RunHandle<String> = onward.start("greet", &"ada").await.unwrap();
        let greeting = run.result().await.unwrap();
        onward.shutdown().await;
        greeting
    });
    assert_eq!(greeting, "hello ada");
    let list_runs_error = |url: String| {
        let output = ran(onward().args(["run", "list", "--server", &url]));
        assert_eq!(output.code, 5, "{}", output.err);
        output.err
    };
    let untrusted = list_runs_error(format!("https://localhost:{port}"));
    assert!(untrusted.contains("certificate") && untrusted.contains("SSL_CERT_FILE"), "{untrusted}");
    let plain = list_runs_error(format!("http://localhost:{port}"));
    assert!(plain.contains("hint: ") && plain.contains("https://"), "{plain}");
    let trusted = ran(onward()
        .args(["run", "list", "--server", &format!("https://localhost:{port}")])
        .env("SSL_CERT_FILE", directory.path().join("cert.pem")));
    assert_eq!(trusted.code, 0, "{}", trusted.err);
    served.signal("-TERM");
    assert_eq!(served.end(), Some(0));
}

#[test]
fn a_server_does_not_start_with_half_of_a_certificate() {
    let directory = tempfile::tempdir().unwrap();
    write_files(directory.path());
    let (cert, key) = (directory.path().join("cert.pem"), directory.path().join("key.pem"));
    let server = || {
        let mut command = onward();
        command.args(["server", "--store", "memory:", "--listen", "127.0.0.1:0"]);
        command
    };
    let half = ran(server().arg("--tls-cert").arg(&cert));
    assert_eq!(half.code, 2);
    assert!(half.err.starts_with("error[tls_files_unusable]: TLS has a certificate but no key"), "{}", half.err);
    let missing = ran(server().arg("--tls-cert").arg("/nowhere/cert.pem").arg("--tls-key").arg(&key));
    assert_eq!(missing.code, 1);
    assert!(missing.err.starts_with("error[tls_files_unusable]: /nowhere/cert.pem cannot be used for TLS"), "{}", missing.err);
    let swapped = ran(server().arg("--tls-cert").arg(&key).arg("--tls-key").arg(&cert));
    assert_eq!(swapped.code, 1);
    assert!(swapped.err.contains("it contains no certificate"), "{}", swapped.err);
}
