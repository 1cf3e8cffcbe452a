//! Tests of the parent module.

use super::*;

crate::numbered! {
    enum Color {
        0 => Red / "red",
        3 => Blue / "blue",
    }
}

crate::message! {
    struct Everything {
        1 => count: Option<u64>,
        2 => flag: Option<bool>,
        3 => text: Option<String>,
        4 => below: Option<i32>,
        5 => color: Option<Color>,
        6 => counts: Vec<u64>,
        7 => texts: Vec<String>,
        8 => colors: Vec<Color>,
        9 => call_ids: Vec<CallId>,
        10 => at: Option<Timestamp>,
        11 => first: Color,
        12 => inner: Vec<Everything>,
        13 => lists: Vec<Option<Vec<u64>>>,
    }
}

crate::choice! {
    enum Either {
        1 => Count / "count": u64,
        2 => Text / "text": String,
    }
}

fn nothing() -> Everything {
    Everything::decode_fields(&[]).unwrap()
}

#[test]
fn a_value_that_is_zero_or_empty_is_not_an_absent_one() {
    let zeros = Everything {
        count: Some(0),
        flag: Some(false),
        text: Some(String::new()),
        below: Some(0),
        color: Some(Color::Red),
        counts: vec![0, 1, u64::MAX, 0],
        texts: vec![String::new(), "a".to_owned(), String::new()],
        colors: Color::ALL.to_vec(),
        call_ids: vec![CallId::root(0), CallId::from_path(&[1, 0, 2]).unwrap()],
        at: Some(Timestamp(0)),
        first: Color::Red,
        inner: vec![nothing(), nothing()],
        lists: vec![None, Some(Vec::new()), Some(vec![0, 7])],
    };
    assert_eq!(Everything::decode_fields(&zeros.to_bytes()).unwrap(), zeros);
    assert_eq!(Everything::decode_fields(&nothing().to_bytes()).unwrap(), nothing());
    for either in [Either::Count(0), Either::Text(String::new())] {
        assert_eq!(Either::decode_fields(&either.to_bytes()).unwrap(), either);
    }
}

#[test]
fn numbers_in_a_list_are_read_packed_and_one_by_one() {
    let packed = Everything { counts: vec![5, 300], ..nothing() };
    let mut bytes = Vec::new();
    put_bytes(6, &[5, 0xac, 2], &mut bytes);
    assert_eq!(Everything::decode_fields(&bytes).unwrap(), packed);
    assert!(packed.to_bytes().windows(bytes.len()).any(|window| window == bytes), "written packed");
    let mut bytes = Vec::new();
    put_number(6, 5, &mut bytes);
    put_number(6, 300, &mut bytes);
    assert_eq!(Everything::decode_fields(&bytes).unwrap(), packed);
}

#[test]
fn what_protobuf_writers_leave_out_is_zero() {
    assert_eq!(nothing().first, Color::Red);
    assert_eq!(Color::from_word("blue"), Some(Color::Blue));
    assert_eq!(Color::from_word("Blue"), None);
    let mut cut = Vec::new();
    put_bytes(6, &[0x80], &mut cut);
    assert_eq!(Everything::decode_fields(&cut), Err(DecodeError::Truncated));
    let mut foreign = Vec::new();
    put_bytes(8, &[1], &mut foreign);
    assert_eq!(Everything::decode_fields(&foreign), Err(DecodeError::Invalid { what: "Color" }));
}
