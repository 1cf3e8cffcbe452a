//! TLS as clients see it: both protocols, valid and invalid certificates, renewal, and incomplete handshakes.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper_util::rt::{TokioExecutor, TokioIo};
use onward::prelude::*;
use onward::{Onward, RunHandle};
use onward_server::trace::Trace;
use onward_server::{Hosts, Limits, Options, Tls};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::site::{DEADLINE, Site, limits};

/// A certificate authority.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    /// Issues a certificate for this name; returns it and its key, both PEM.
    fn vouch(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> (String, String) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }
}

struct Files {
    directory: tempfile::TempDir,
}

impl Files {
    fn new((cert, key): &(String, String)) -> Files {
        let files = Files { directory: tempfile::tempdir().unwrap() };
        std::fs::write(files.cert(), cert).unwrap();
        std::fs::write(files.key(), key).unwrap();
        files
    }

    fn cert(&self) -> PathBuf {
        self.directory.path().join("cert.pem")
    }

    fn key(&self) -> PathBuf {
        self.directory.path().join("key.pem")
    }

    fn open(&self) -> Result<Tls, String> {
        Tls::open(&self.cert(), &self.key(), Trace::silent()).map_err(|error| error.to_string())
    }
}

async fn serve(files: &Files, limits: Limits) -> Site {
    let tls = Some(files.open().unwrap());
    Site::with(Options { tls, limits, hosts: Hosts::Any, ..Options::default() }).await
}

/// Connects as a client that trusts only this authority.
async fn greet(address: SocketAddr, root: &str, name: &str, protocols: &[&str]) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(root.as_bytes()).unwrap()).unwrap();
    let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    let stream = TcpStream::connect(address).await?;
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from(name.to_owned()).unwrap(), stream).await
}

/// Requests `/healthz` over HTTP/1.1.
async fn healthz(stream: &mut TlsStream<TcpStream>) -> String {
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    let mut buffer = [0; 1024];
    while !answer.ends_with("ok\n") {
        let count = stream.read(&mut buffer).await.unwrap();
        assert!(count > 0, "the connection ended: {answer}");
        answer.push_str(std::str::from_utf8(&buffer[..count]).unwrap());
    }
    answer
}

#[tokio::test]
async fn both_protocols_are_agreed_on_over_one_port() {
    let authority = Authority::new();
    let files = Files::new(&authority.vouch("localhost", |_| ()));
    let site = serve(&files, limits()).await;
    let mut old = greet(site.address, &authority.pem(), "localhost", &["http/1.1"]).await.unwrap();
    assert_eq!(old.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    assert!(healthz(&mut old).await.starts_with("HTTP/1.1 200 OK"));

    let new = greet(site.address, &authority.pem(), "localhost", &["h2", "http/1.1"]).await.unwrap();
    assert_eq!(new.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(new)).await.unwrap();
    tokio::spawn(connection);
    let request = hyper::Request::get("https://localhost/healthz").body(String::new()).unwrap();
    assert_eq!(sender.send_request(request).await.unwrap().status(), 200);
    let request = hyper::Request::delete("https://localhost/v1/session").body(String::new()).unwrap();
    let signed_out = sender.send_request(request).await.unwrap();
    let cookie = signed_out.headers()["set-cookie"].to_str().unwrap();
    assert!(cookie.ends_with("; Secure"), "cookies are sent over TLS only: {cookie}");

    // A client without TLS gets no response.
    let mut plain = TcpStream::connect(site.address).await.unwrap();
    plain.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    drop(plain.read_to_end(&mut answer).await);
    assert!(!String::from_utf8_lossy(&answer).contains("HTTP/1.1"), "{answer:?}");
    assert_eq!(site.server.metrics().tls_refused.value(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_and_its_caller_come_over_tls() {
    let authority = Authority::new();
    let files = Files::new(&authority.vouch("localhost", |_| ()));
    let site = serve(&files, limits()).await;
    let onward = Onward::connect(format!("https://localhost:{}", site.address.port()))
        .root_certificate(authority.pem())
        .workflow("greet", async |ctx: Ctx, name: String| {
            ctx.step("greet", async || Ok::<_, Failure>(format!("hello {name}"))).await
        })
        .start()
        .await
        .unwrap();
    let run: RunHandle<String> = onward.start("greet", &"ada").await.unwrap();
    let greeting = tokio::time::timeout(DEADLINE, run.result()).await.unwrap().unwrap();
    assert_eq!(greeting, "hello ada");
}

/// S9: a certificate that is not valid for the requested name is refused.
#[tokio::test]
async fn a_certificate_that_does_not_fit_is_refused_by_the_client() {
    let (authority, other) = (Authority::new(), Authority::new());
    let refused = async |name: &str, root: &Authority, change: fn(&mut CertificateParams)| {
        let files = Files::new(&authority.vouch(name, change));
        let site = serve(&files, limits()).await;
        let url = format!("https://localhost:{}", site.address.port());
        let worker = Onward::connect(url).root_certificate(root.pem()).workflow("greet", async |_: Ctx, (): ()| Ok(()));
        let Err(error) = worker.start().await else { panic!("the certificate was accepted") };
        assert_eq!(error.code(), "server_unreachable", "{error}");
        error.to_string()
    };
    let (wrong_authority, wrong_name, expired) = tokio::join!(
        refused("localhost", &other, |_| ()),
        refused("example.test", &authority, |_| ()),
        refused("localhost", &authority, |params| params.not_after = rcgen::date_time_ymd(2020, 1, 1)),
    );
    assert!(wrong_authority.contains("invalid peer certificate: BadSignature"), "{wrong_authority}");
    assert!(wrong_name.contains("NotValidForName") || wrong_name.contains("not valid for name"), "{wrong_name}");
    assert!(expired.contains("Expired") || expired.contains("expired"), "{expired}");
}

#[tokio::test]
async fn a_root_that_is_no_certificate_is_refused_at_once() {
    let Err(error) = Onward::connect("https://localhost:1").root_certificate("nonsense").start().await else { panic!() };
    assert_eq!(error.code(), "server_url_invalid", "{error}");
}

/// Returns the certificate that a new connection gets.
async fn shown(address: SocketAddr, root: &str) -> Vec<u8> {
    let stream = greet(address, root, "localhost", &["http/1.1"]).await.unwrap();
    stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}

/// TL2, and open connections continue.
#[tokio::test]
async fn a_renewed_certificate_is_shown_without_a_restart() {
    let authority = Authority::new();
    let files = Files::new(&authority.vouch("localhost", |_| ()));
    let site = serve(&files, limits()).await;
    let root = authority.pem();
    let first = shown(site.address, &root).await;
    let mut open = greet(site.address, &root, "localhost", &["http/1.1"]).await.unwrap();
    let (cert, key) = authority.vouch("localhost", |_| ());
    // The middle of a renewal: the key does not belong to the certificate yet.
    std::fs::write(files.cert(), cert).unwrap();
    let until = Instant::now() + Duration::from_millis(2_500);
    while Instant::now() < until {
        assert!(shown(site.address, &root).await == first, "a certificate without its key is not used");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    std::fs::write(files.key(), key).unwrap();
    let deadline = Instant::now() + DEADLINE;
    while shown(site.address, &root).await == first {
        assert!(Instant::now() < deadline, "the new certificate is not used");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(healthz(&mut open).await.contains("200 OK"));
}

/// TL1.
#[test]
fn files_that_are_no_certificate_and_key_are_refused_with_a_reason() {
    let authority = Authority::new();
    let (good, other) = (authority.vouch("localhost", |_| ()), authority.vouch("localhost", |_| ()));
    let open_error = |cert: &str, key: &str| Files::new(&(cert.to_owned(), key.to_owned())).open().unwrap_err();
    let mismatch = open_error(&good.0, &other.1);
    assert!(mismatch.contains("cert.pem") && mismatch.contains("key.pem") && mismatch.contains("KeyMismatch"), "{mismatch}");
    for (cert, key, file) in [
        ("", &good.1[..], "cert.pem"),
        ("nonsense", &good.1, "cert.pem"),
        (&good.0, "", "key.pem"),
        (&good.0, &good.0, "key.pem"),
    ] {
        let why = open_error(cert, key);
        assert!(why.contains(file) && why.contains("cannot be used for TLS"), "{why}");
        assert!(!why.contains("PRIVATE KEY"), "{why}");
    }
    let gone = Files::new(&good);
    std::fs::remove_file(gone.key()).unwrap();
    assert!(gone.open().unwrap_err().contains("key.pem"));
}

/// S25: the handshake has a timeout.
#[tokio::test]
async fn a_client_that_never_finishes_its_greeting_is_cut_off() {
    let authority = Authority::new();
    let files = Files::new(&authority.vouch("localhost", |_| ()));
    let site = serve(&files, Limits { header_timeout: Duration::from_millis(300), ..limits() }).await;
    let mut silent = TcpStream::connect(site.address).await.unwrap();
    let mut slow = TcpStream::connect(site.address).await.unwrap();
    let begun = Instant::now();
    let dripping = async {
        // The head of a handshake, then one byte at a time.
        drop(slow.write_all(&[22, 3, 1, 2, 0, 1]).await);
        while slow.write_all(&[0]).await.is_ok() && begun.elapsed() < DEADLINE {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let ended = async { drop(silent.read(&mut [0; 1]).await) };
    tokio::time::timeout(DEADLINE, async { tokio::join!(dripping, ended) }).await.unwrap();
    assert_eq!(site.server.metrics().tls_refused.value(), 2);
}

/// S25: silent connections are closed for new ones, long before their timeout.
#[tokio::test]
async fn silent_connections_leave_room_for_those_that_speak() {
    let authority = Authority::new();
    let files = Files::new(&authority.vouch("localhost", |_| ()));
    let site = serve(&files, Limits { connections_max: 20, header_timeout: Duration::from_secs(3_600), ..limits() }).await;
    let mut silent = Vec::new();
    for _ in 0..60 {
        silent.push(TcpStream::connect(site.address).await.unwrap());
    }
    let begun = Instant::now();
    let mut stream = greet(site.address, &authority.pem(), "localhost", &["http/1.1"]).await.unwrap();
    assert!(healthz(&mut stream).await.contains("200 OK"));
    assert!(begun.elapsed() < DEADLINE, "{:?}", begun.elapsed());
    drop(silent);
}
