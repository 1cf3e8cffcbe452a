//! Tests of the parent module.

use super::*;

#[test]
fn a_limit_is_that_of_an_address_and_a_key_and_reveals_neither() {
    let limit = |url: &str, key: Option<&str>| Provider::openai(url, key.map(Key::new)).unwrap().named("any").limit("here");
    let one = limit("https://a.example/v1", Some("sk-1"));
    assert_eq!(one, Provider::openai("https://a.example/v1", Some(Key::new("sk-1"))).unwrap().limit("there"));
    assert_eq!(one.len(), 32);
    let others = [
        limit("https://a.example/v1", Some("sk-2")),
        limit("https://b.example/v1", Some("sk-1")),
        limit("https://a.example/v1", None),
        Provider::openai("https://a.example/v1", None).unwrap().limit("there"),
    ];
    let all: std::collections::BTreeSet<&String> = others.iter().chain([&one]).collect();
    assert_eq!(all.len(), 5);
}

#[test]
fn every_address_has_a_name_of_its_own() {
    let name = |url: &str| Provider::openai(url, None).unwrap().name().to_owned();
    assert_eq!(name("https://api.openai.com/v1"), "openai");
    assert_eq!(name("http://localhost:11434/v1/"), "localhost:11434");
    assert_eq!(name("https://gateway.example.com/azure/v1"), "gateway.example.com/azure");
    let anthropic = |url: &str| Provider::anthropic(url, None).unwrap();
    assert_eq!(anthropic("https://api.anthropic.com").name(), "anthropic");
    assert_eq!(anthropic("https://gateway.example.com").named("mine").name(), "mine");
}
