//! Tests of the parent module.

use super::*;

#[test]
fn a_digest_is_the_known_one_and_reads_back() {
    let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(String::from(Digest::of("abc")), text);
    assert_eq!(Digest::try_from(text.to_owned()), Ok(Digest::of("abc")));
    assert!(Digest::of("abc").equals(&Digest::of("abc")) && !Digest::of("abc").equals(&Digest::of("abd")));
    for wrong in ["", "ba78", &text.replace('b', "x"), &format!("+{}", &text[1..])] {
        assert!(Digest::try_from(wrong.to_owned()).is_err(), "{wrong}");
    }
}

#[test]
fn a_star_is_every_namespace_and_a_name_is_one() {
    let reach = |text: &str| Reach::from(Namespace::new(text).unwrap());
    assert!(reach("*").covers(&Namespace::default()));
    assert!(!reach("a").covers(&Namespace::default()));
    assert_eq!(serde_json::to_string(&reach("*")).unwrap(), r#""*""#);
    assert_eq!(serde_json::from_str::<Reach>(r#""a""#).unwrap(), reach("a"));
}
