//! Expressions, calendars and lists, and their errors.

use super::*;

/// Asserts the first slots after 2026-01-01T00:00:00Z.
fn assert_slots(expression: &str, slots: &[&str]) {
    assert_eq!(first(&cron(expression, "UTC"), "2026-01-01T00:00:00Z", slots.len()), slots, "{expression}");
}

#[test]
fn expressions_have_five_or_six_fields_names_steps_and_ranges() {
    assert_slots(
        "*/20 9 * * *",
        &["2026-01-01T09:00:00Z", "2026-01-01T09:20:00Z", "2026-01-01T09:40:00Z", "2026-01-02T09:00:00Z"],
    );
    assert_slots("30 5 9 * * *", &["2026-01-01T09:05:30Z", "2026-01-02T09:05:30Z"]);
    assert_slots("0 9 * feb-Mar MON", &["2026-02-02T09:00:00Z", "2026-02-09T09:00:00Z"]);
    assert_slots(
        "0 9 * * FRI-SUN",
        &["2026-01-02T09:00:00Z", "2026-01-03T09:00:00Z", "2026-01-04T09:00:00Z", "2026-01-09T09:00:00Z"],
    );
    assert_slots("0 9 * * 7", &["2026-01-04T09:00:00Z"]);
    assert_slots("0 9 * * 1/2", &["2026-01-02T09:00:00Z", "2026-01-05T09:00:00Z", "2026-01-07T09:00:00Z"]);
    assert_slots("10/25 0 ? * *", &["2026-01-01T00:10:00Z", "2026-01-01T00:35:00Z", "2026-01-02T00:10:00Z"]);
    assert_slots("  0\t12  * * * ", &["2026-01-01T12:00:00Z"]);
    assert_slots("@Daily", &["2026-01-02T00:00:00Z"]);
}

#[test]
fn days_have_last_and_nearest_weekday_and_weekdays_have_nth_and_last() {
    assert_slots("0 0 L * *", &["2026-01-31T00:00:00Z", "2026-02-28T00:00:00Z"]);
    assert_slots("0 0 L-2 * *", &["2026-01-29T00:00:00Z", "2026-02-26T00:00:00Z"]);
    // 1 February 2026 is a Sunday, 15 August 2026 a Saturday, and 31 May 2026 a Sunday at the end of its month.
    assert_slots("0 0 1W * *", &["2026-02-02T00:00:00Z", "2026-03-02T00:00:00Z", "2026-04-01T00:00:00Z"]);
    assert_slots("0 0 15W 8 *", &["2026-08-14T00:00:00Z"]);
    assert_slots("0 0 31W 5 *", &["2026-05-29T00:00:00Z"]);
    assert_slots("0 0 LW 5 *", &["2026-05-29T00:00:00Z"]);
    assert_slots("0 0 * * FRI#2", &["2026-01-09T00:00:00Z", "2026-02-13T00:00:00Z"]);
    assert_slots("0 0 * * 5L", &["2026-01-30T00:00:00Z", "2026-02-27T00:00:00Z"]);
    assert_slots("0 0 * * MON#5", &["2026-03-30T00:00:00Z", "2026-06-29T00:00:00Z"]);
    assert_slots("0 0 29 2 *", &["2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"]);
}

#[test]
fn a_day_and_a_weekday_of_an_expression_select_either() {
    assert_slots(
        "0 0 13 * FRI",
        &["2026-01-02T00:00:00Z", "2026-01-09T00:00:00Z", "2026-01-13T00:00:00Z", "2026-01-16T00:00:00Z"],
    );
    let friday_13 = Calendar { day: Some("13".to_owned()), weekday: Some("FRI".to_owned()), ..Calendar::default() };
    let spec = ScheduleSpec { calendars: vec![friday_13], ..ScheduleSpec::default() };
    assert_eq!(first(&spec, "2026-01-01T00:00:00Z", 2), ["2026-02-13T00:00:00Z", "2026-03-13T00:00:00Z"]);
}

#[test]
fn lists_are_united_and_exceptions_are_left_out() {
    let spec = ScheduleSpec {
        cron: vec!["0 9 * * *".to_owned()],
        every: vec![Interval { every_ms: 12 * 3_600_000, offset_ms: 3_600_000 }],
        at: vec![at("2026-12-25T09:00:00Z"), at("2026-12-23T00:00:00.500Z")],
        calendars: vec![Calendar { year: Some("2027".to_owned()), minute: Some("5".to_owned()), ..Calendar::default() }],
        except: vec![
            Calendar { dates: vec!["2026-12-24/2026-12-31".to_owned()], ..Calendar::default() },
            Calendar { hour: Some("13".to_owned()), ..Calendar::default() },
        ],
        start_at: Some(at("2026-12-22T13:00:00Z")),
        end_at: Some(at("2027-01-01T09:00:00Z")),
        ..ScheduleSpec::default()
    };
    let expected = [
        "2026-12-23T00:00:00.500Z",
        "2026-12-23T01:00:00Z",
        "2026-12-23T09:00:00Z",
        "2027-01-01T00:05:00Z",
        "2027-01-01T01:00:00Z",
    ];
    assert_eq!(first(&spec, "2020-01-01T00:00:00Z", 9), expected);
}

#[test]
fn calendars_have_years_and_dates() {
    let by_year = Calendar {
        year: Some("2030/5".to_owned()),
        day: Some("1".to_owned()),
        month: Some("7".to_owned()),
        ..Calendar::default()
    };
    let dates = Calendar {
        dates: vec!["2031-02-03/2031-02-04".to_owned(), "2030-12-31".to_owned()],
        hour: Some("8".to_owned()),
        ..Calendar::default()
    };
    let spec = ScheduleSpec { calendars: vec![by_year, dates], ..ScheduleSpec::default() };
    let expected =
        ["2030-07-01T00:00:00Z", "2030-12-31T08:00:00Z", "2031-02-03T08:00:00Z", "2031-02-04T08:00:00Z", "2035-07-01T00:00:00Z"];
    assert_eq!(first(&spec, "2026-01-01T00:00:00Z", 5), expected);
}

#[test]
fn errors_name_the_part_the_character_and_a_remedy() {
    for (expression, position, message) in [
        ("* * * *", Some(1), "4 fields"),
        ("", Some(1), "0 fields"),
        ("60 * * * *", Some(1), "between 0 and 59"),
        ("0 9 * * MOON", Some(9), "`MOON` is no weekday"),
        ("0  25 * * *", Some(4), "between 0 and 23"),
        ("0 0 1,32 * *", Some(7), "between 1 and 31"),
        ("0 22-2 * * *", Some(3), "ends before it begins"),
        ("*/0 * * * *", Some(3), "between 1"),
        ("*/60 * * * *", Some(3), "larger than the range"),
        ("0 0 1, * *", Some(7), "a day is missing"),
        ("0 0 * * 1#6", Some(11), "between 1 and 5"),
        ("0 0 * * L", Some(9), "needs a weekday"),
        ("0 0 -1 * *", Some(5), "missing"),
        ("0 0 ٣ * *", Some(5), "is no day"),
        ("0 0 +1 * *", Some(5), "is no day"),
        ("0 0 31 2 *", None, "no time matches"),
        ("0 0 30 FEB MON#1", None, ""),
        ("0 0 31 4,6,9,11 *", None, "no time matches"),
    ] {
        let result = Slots::new(&cron(expression, "UTC"));
        if message.is_empty() {
            assert!(result.is_ok(), "{expression}: the weekday alone selects days");
            continue;
        }
        let error = result.unwrap_err();
        assert_eq!((error.part.as_str(), error.position), ("spec.cron[0]", position), "{expression}: {error}");
        assert!(error.message.contains(message), "{expression}: {error}");
        assert!(!error.hint.is_empty() && error.info().code == "schedule_invalid");
    }
    let error = Slots::new(&cron("0 0 32 * *", "UTC")).unwrap_err();
    assert_eq!(error.to_string(), "spec.cron[0], character 5: `32` is no day between 1 and 31");
}

#[test]
fn specifications_without_times_or_with_impossible_parts_are_refused() {
    let of = |spec: ScheduleSpec| Slots::new(&spec).map(drop).unwrap_err().to_string();
    assert_eq!(of(ScheduleSpec::default()), "spec: the specification has no times");
    assert_eq!(of(cron("0 0 * * *", "Europe/Berlln")), "spec.time_zone: `Europe/Berlln` is no time zone");
    for zone in ["", "Etc/Unknown", "local", "+02:00", "../../etc/passwd"] {
        assert!(Slots::new(&cron("0 0 * * *", zone)).is_err(), "{zone}");
    }
    let interval =
        |every_ms, offset_ms| ScheduleSpec { every: vec![Interval { every_ms, offset_ms }], ..ScheduleSpec::default() };
    assert!(of(interval(999, 0)).starts_with("spec.every[0]: the interval is shorter"));
    assert!(of(interval(1_000, 1_000)).contains("offset"));
    let (start_at, end_at) = (Some(Timestamp(5)), Some(Timestamp(5)));
    assert!(of(ScheduleSpec { start_at, end_at, ..every(1) }).starts_with("spec.end_at"));
    let calendar = |calendar| ScheduleSpec { calendars: vec![calendar], ..ScheduleSpec::default() };
    let dates = |text: &str| calendar(Calendar { dates: vec![text.to_owned()], ..Calendar::default() });
    for text in ["2026-02-30", "tomorrow", "2026-01-02/2026-01-01", "1969-12-31", "2026-01-01/"] {
        assert!(of(dates(text)).starts_with("spec.calendars[0].dates[0]"), "{text}");
    }
    let hour = Calendar { hour: Some("24".to_owned()), ..Calendar::default() };
    assert_eq!(of(calendar(hour)), "spec.calendars[0].hour, character 1: `24` is no hour between 0 and 23");
    let except = ScheduleSpec { except: vec![Calendar { month: Some("0".to_owned()), ..Calendar::default() }], ..every(1) };
    assert!(of(except).starts_with("spec.except[0].month"));
    let long = cron(&format!("0 0 {} * *", "1,".repeat(600)), "UTC");
    assert!(of(long).contains("bytes"));
    assert!(of(ScheduleSpec { cron: vec!["@daily".to_owned(); 101], ..ScheduleSpec::default() }).contains("101 entries"));
}

#[test]
fn the_json_of_a_specification_refuses_unknown_fields_and_negative_numbers() {
    let spec: ScheduleSpec = serde_json::from_str(
        r#"{"cron": ["0 9 * * MON-FRI"], "time_zone": "Europe/Berlin", "except": [{"dates": ["2026-12-25"]}]}"#,
    )
    .unwrap();
    assert!(Slots::new(&spec).is_ok());
    assert_eq!(serde_json::from_str::<ScheduleSpec>(&serde_json::to_string(&spec).unwrap()).unwrap(), spec);
    for text in [r#"{"crom": []}"#, r#"{"every": [{"every_ms": -1}]}"#, r#"{"except": [{"date": "2026-12-25"}]}"#] {
        assert!(serde_json::from_str::<ScheduleSpec>(text).is_err(), "{text}");
    }
    let definition = definition(spec, ScheduleOptions { overlap: Overlap::BufferAll, ..ScheduleOptions::default() });
    use crate::log::codec::Message;
    assert_eq!(ScheduleDefinition::decode_fields(&definition.to_bytes()).unwrap(), definition);
}
