use onward_flow::document::{Known, check, parse};

use super::*;

#[test]
fn every_template_is_a_flow_without_problems() {
    for template in FlowTemplate::ALL {
        for name in ["my-flow", "true"] {
            let text = template.render(name);
            assert!(!text.contains(NAME), "{text}");
            let parsed = parse(&text, "template");
            let problems = check(&parsed, &Known::default());
            assert!(problems.is_empty(), "{}: {problems:#?}", template.as_str());
            assert_eq!(parsed.flow.unwrap().flow, name);
        }
    }
}

#[test]
fn names_are_names_of_files() {
    for good in ["a", "a-b_1", "True"] {
        assert_eq!(flow_name(good), Ok(good.to_owned()));
    }
    for bad in ["", "../x", "a/b", "a b", "-x", "1", "a\n", "é", &"x".repeat(101)] {
        assert!(flow_name(bad).is_err(), "{bad:?}");
    }
}
