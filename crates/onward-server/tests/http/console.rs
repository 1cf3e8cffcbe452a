//! The console as a browser gets it.

use crate::site::Site;

const BROWSER: &str = "Accept: text/html,application/xhtml+xml\r\n";

/// The files of the console, and their types.
const FILES: [(&str, &str); 3] =
    [("app.js", "text/javascript; charset=utf-8"), ("app.css", "text/css; charset=utf-8"), ("icon.svg", "image/svg+xml")];

#[tokio::test]
async fn a_browser_gets_the_console_and_its_files_without_a_key() {
    let (locked, _) = crate::keys::Locked::open().await;
    let site = &locked.site;
    let page = site.send("GET", "/", BROWSER, "").await;
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")), "{}", page.body);
    for (name, content_type) in FILES {
        let file = site.get(&format!("/console/{name}")).await;
        assert_eq!((file.status, file.header("content-type")), (200, Some(content_type)), "{name}");
        assert!(page.body.contains(&format!("/console/{name}")), "the page does not use {name}");
    }
    assert!(site.get("/").await.body.starts_with("onward "), "other clients get text");
    for path in ["/console/none.js", "/console/..%2Fapp.js", "/console/"] {
        site.get(path).await.problem(404, "route_not_found");
    }
}

/// S21: no inline code, nothing of other origins, no frames.
#[tokio::test]
async fn the_console_permits_only_code_and_data_of_its_server() {
    let site = Site::open().await;
    for path in ["/", "/console/app.js", "/console/icon.svg"] {
        let reply = site.send("GET", path, BROWSER, "").await;
        let policy = reply.header("content-security-policy").unwrap();
        for part in
            ["default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "frame-ancestors 'none'"]
        {
            assert!(policy.split("; ").any(|found| found == part), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(reply.header("referrer-policy"), Some("no-referrer"), "{path}");
        assert_eq!(reply.header("cross-origin-opener-policy"), Some("same-origin"), "{path}");
    }
    let page = site.send("GET", "/", BROWSER, "").await.body;
    let scripts = page.matches("<script").count();
    assert_eq!(scripts, page.matches(" src=\"/console/").count(), "scripts are files: {page}");
    assert!(!page.contains("<style") && !page.contains(" style=") && !page.contains(" onclick"), "{page}");
}

#[tokio::test]
async fn a_file_that_the_browser_has_is_not_sent_again() {
    let site = Site::open().await;
    for (path, accept) in [("/", BROWSER), ("/console/app.js", "")] {
        let first = site.send("GET", path, accept, "").await;
        assert_eq!(first.header("cache-control"), Some("no-cache"), "{path}");
        let etag = first.header("etag").unwrap().to_owned();
        for known in [etag.clone(), format!("W/{etag}"), format!("\"x\", {etag}")] {
            let again = site.send("GET", path, &format!("{accept}If-None-Match: {known}\r\n"), "").await;
            assert_eq!((again.status, again.body.as_str()), (304, ""), "{known}");
            assert_eq!(again.header("etag"), Some(&*etag));
        }
        let other = site.send("GET", path, &format!("{accept}If-None-Match: \"x\"\r\n"), "").await;
        assert_eq!((other.status, other.body), (200, first.body));
    }
}
