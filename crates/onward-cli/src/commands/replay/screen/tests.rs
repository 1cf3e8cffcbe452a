//! Tests of the parent module.

use super::super::timeline::tests::order;
use super::*;

fn text(rows: &[Vec<Row>]) -> String {
    rows.iter().map(|row| row.iter().map(|part| part.text.as_str()).collect::<String>().trim_end().to_owned() + "\n").collect()
}

#[test]
fn a_screen_is_as_large_as_the_window() {
    let timeline = order();
    for (width, height) in [(80, 24), (200, 50), (40, 10), (1, 1)] {
        for at in 0..=timeline.last() {
            let rows = draw(&timeline, at, width, height);
            assert_eq!(rows.len(), height.max(6), "{width}x{height}");
            for row in &rows {
                assert!(row.iter().map(|part| part.text.chars().count()).sum::<usize>() <= width.max(20), "{row:?}");
            }
        }
    }
}

#[test]
fn a_moment_shows_what_was_known_then_and_nothing_later() {
    let timeline = order();
    let shown = text(&draw(&timeline, 3, 80, 30));
    assert!(shown.contains("▶   3") && shown.contains("signal payment") && shown.contains("stage = \"charged\""), "{shown}");
    assert!(shown.contains("waiting  event 3 of"), "{shown}");
    let before = text(&draw(&timeline, 1, 80, 30));
    let below = before.split('─').next_back().unwrap();
    assert!(!below.contains("signal payment") && !below.contains("stage ="), "{before}");
    let after = text(&draw(&timeline, timeline.last(), 80, 30));
    assert!(after.contains("completed  event"), "{after}");
}
