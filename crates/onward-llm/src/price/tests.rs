//! Tests of the parent module.

use super::*;

#[test]
fn dollars_are_read_and_written_exactly() {
    for (text, micro) in [("2.50", 2_500_000), ("0.000001", 1), ("15", 15_000_000), ("0", 0), ("18446744073709.551615", u64::MAX)]
    {
        assert_eq!(PerMillion::parse(text), Some(PerMillion(micro)), "{text}");
    }
    for text in ["", ".5", "1.", "-1", "1e3", "0.0000001", "1.5.0", "18446744073709.551616", "$2"] {
        assert_eq!(PerMillion::parse(text), None, "{text}");
    }
    assert_eq!(PerMillion(2_500_000).to_string(), "2.5");
    assert_eq!(PicoDollars(1).to_string(), "0.000000000001");
}

#[test]
fn each_sort_of_token_has_its_price() {
    let price = Price {
        input: PerMillion::parse("3").unwrap(),
        cached_read: PerMillion::parse("0.30"),
        cached_write: PerMillion::parse("3.75"),
        output: PerMillion::parse("15").unwrap(),
    };
    let usage = Usage { input: 10, cached_read: 1_000, cached_write: 100, output: 7, reasoning: 5 };
    // 30 + 300 + 375 + 105 millionths; reasoning is part of the output.
    assert_eq!(price.cost(&usage), PicoDollars(810_000_000));
    assert_eq!(price.cost(&usage).to_string(), "0.00081");
    let plain = Price { cached_read: None, cached_write: None, ..price };
    assert_eq!(plain.cost(&usage), PicoDollars(3_435_000_000));
}

#[test]
fn cost_is_the_sum_of_its_parts_and_stops_at_the_largest_amount() {
    let price = Price { input: PerMillion(u64::MAX), cached_read: None, cached_write: None, output: PerMillion(1) };
    assert_eq!(price.cost(&Usage { input: 2, ..Usage::default() }), PicoDollars(u64::MAX));
    let price = Price { input: PerMillion(7), ..price };
    let [a, b] = [3, 4].map(|input| Usage { input, output: 5, ..Usage::default() });
    let both = Usage { input: 7, output: 10, ..Usage::default() };
    assert_eq!(price.cost(&a).plus(price.cost(&b)), price.cost(&both));
}
