//! A host that lives as long as a request, without a worker in the background. Each request drives one run until it waits or
//! ends.
//!
//! `cargo run --example drive`

use std::net::SocketAddr;

use anyhow::Result;
use onward::{Ctx, Driven, Failure, Onward, RunInput, Signal, Workflow};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

const ORDER: Workflow<String, String> = Workflow::new("order");
const PAYMENT: Signal<u64> = Signal::new("payment");

async fn order(ctx: Ctx, id: String) -> onward::Result<String> {
    let charge: u64 = ctx.step("charge", async || Ok::<_, Failure>(4_200)).await?;
    let paid = ctx.signal(&PAYMENT).recv().await?;
    if paid < charge {
        return Err(Failure::fatal(format!("{paid} is not {charge}")).with_code("underpaid"));
    }
    Ok(format!("order {id} is paid"))
}

/// Starts or signals a run, drives it in this process, and returns its state.
async fn handle(onward: &Onward, path: &str, body: &str) -> Result<String, onward::Error> {
    let mut words = path.trim_matches('/').split('/');
    let driven = match (words.next(), words.next(), words.next()) {
        (Some("orders"), Some(id), None) => {
            let run = onward.start(&ORDER, id).id(format!("order-{id}")).await?;
            onward.drive(run.id(), RunInput::nothing()).await?
        }
        (Some("orders"), Some(id), Some("payment")) => {
            let cents: u64 = body.trim().parse().unwrap_or_default();
            onward.drive(&format!("order-{id}"), RunInput::signal(&PAYMENT, &cents).id("payment")).await?
        }
        _ => return Ok("not found".to_owned()),
    };
    Ok(match driven {
        Driven::Waiting(view) => {
            let awaited = view.awaiting.first().and_then(|awaited| awaited.name.as_ref());
            format!("waits for {}", awaited.map(ToString::to_string).unwrap_or_default())
        }
        Driven::Paused(_) => "paused".to_owned(),
        Driven::Ended(Ok(output)) => output.read::<String>().unwrap_or_default(),
        Driven::Ended(Err(failure)) => format!("failed: {}", failure.message),
    })
}

/// Reads a request and writes a response, with a minimum of HTTP.
async fn answer(onward: &Onward, stream: &mut TcpStream) -> Result<()> {
    let (reader, mut writer) = stream.split();
    let mut reader = BufReader::new(reader);
    let (mut line, mut length) = (String::new(), 0);
    reader.read_line(&mut line).await?;
    let path = line.split(' ').nth(1).unwrap_or("/").to_owned();
    loop {
        line.clear();
        reader.read_line(&mut line).await?;
        match line.trim().to_ascii_lowercase().strip_prefix("content-length:") {
            Some(number) => length = number.trim().parse().unwrap_or(0),
            None if line.trim().is_empty() => break,
            None => {}
        }
    }
    let mut body = vec![0; length.min(1_000)];
    reader.read_exact(&mut body).await?;
    let (status, text) = match handle(onward, &path, &String::from_utf8_lossy(&body)).await {
        Ok(text) => ("200 OK", text),
        Err(error) => ("409 Conflict", format!("{}: {error}", error.code())),
    };
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", text.len() + 1);
    writer.write_all(format!("{head}{text}\n").as_bytes()).await?;
    Ok(())
}

/// Answers one request after the other.
async fn host(onward: Onward, listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        if let Err(error) = answer(&onward, &mut stream).await {
            eprintln!("{error}");
        }
    }
}

/// Posts to the host.
async fn post(address: SocketAddr, path: &str, body: &str) -> Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    println!("POST {path}: {}", answer.split("\r\n\r\n").nth(1).unwrap_or_default().trim());
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let directory = tempfile::tempdir()?;
    // With `Onward::connect(url)` instead, a server stores the runs, and there may be many such hosts.
    let onward = Onward::embedded(directory.path()).workflow(&ORDER, order).on_demand().start().await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let host = tokio::spawn(host(onward, listener));
    post(address, "/orders/42", "").await?;
    post(address, "/orders/42", "").await?; // nothing new: it still waits
    post(address, "/orders/42/payment", "4200").await?;
    post(address, "/orders/43/payment", "1").await?; // there is no such order
    host.abort();
    Ok(())
}
