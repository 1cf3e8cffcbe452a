//! What expressions and templates give, what they refuse, and what they cost.

use serde_json::{Value, json};

use super::{Expression, ExpressionError, ExpressionErrorKind as Kind, Scope, Template, limits};

fn scope() -> Scope {
    Scope::new().with("inputs", &json!({"topic": "bees", "depth": 2, "tags": ["b", "A", "c", "a"]})).with(
        "state",
        &json!({
            "page": "Bees fly.", "none": null, "yes": true, "ratio": 0.5, "big": u64::MAX, "small": i64::MIN,
            "authors": [{"name": "Ada", "age": 36}, {"name": "Bob", "age": 25}, {"name": "cy", "age": 36}],
            "map": {"b": 1, "a": 2}, "empty": [], "größe": 3, "json": "{\"a\": [1, 2.0, \"x\"]}",
        }),
    )
}

fn eval(source: &str) -> Value {
    Expression::compile(source)
        .and_then(|expression| expression.eval(&scope()))
        .unwrap_or_else(|error| panic!("{source}: {error}"))
}

fn text(source: &str) -> String {
    Template::of_text(source).and_then(|template| template.text(&scope())).unwrap_or_else(|error| panic!("{source}: {error}"))
}

fn refused(source: &str) -> ExpressionError {
    let evaluated = Expression::compile(source).and_then(|expression| expression.eval(&scope()));
    evaluated.expect_err(&format!("{} is refused", source.chars().take(60).collect::<String>()))
}

fn text_refused(source: &str) -> ExpressionError {
    let rendered = Template::of_text(source).and_then(|template| template.text(&scope()));
    rendered.expect_err(&format!("{} is refused", source.chars().take(60).collect::<String>()))
}

/// Checks pairs of an expression and its value as JSON.
fn check(cases: &[(&str, &str)]) {
    for (source, expected) in cases {
        assert_eq!(eval(source).to_string(), *expected, "{source}");
    }
}

#[test]
fn operators_work_as_in_jinja() {
    check(&[
        ("1 + 2 * 3", "7"),
        ("7 / 2", "3.5"),
        ("6 / 2", "3.0"),
        ("-7 // 2", "-4"),
        ("-7 % 3", "2"),
        ("7.5 // 2", "3.0"),
        ("2 ** 10", "1024"),
        ("-2 + 5", "3"),
        ("-2.5", "-2.5"),
        ("'a' ~ 1 ~ true ~ none ~ 1.0", r#""a1truenull1.0""#),
        ("'a' + 'b'", r#""ab""#),
        ("[1] + [2]", "[1,2]"),
        ("'ab' * 2", r#""abab""#),
        ("1 < 2 < 3", "true"),
        ("1 < 3 < 2", "false"),
        ("1 == 1.0", "true"),
        ("1 == '1'", "false"),
        ("'e' in state.page and 'x' not in state.page", "true"),
        ("2 in [1, 2]", "true"),
        ("'a' in state.map", "true"),
        ("state.none or 'other'", r#""other""#),
        ("not state.empty", "true"),
        ("'yes' if state.yes else 'no'", r#""yes""#),
        ("'yes' if not state.yes", r#""""#),
        ("state.authors[0].name", r#""Ada""#),
        ("state.authors[-1]['name']", r#""cy""#),
        ("state['größe']", "3"),
        ("state.page[:4]", r#""Bees""#),
        ("state.page[-4:]", r#""fly.""#),
        ("state.page[0]", r#""B""#),
        ("[1, 2, 3, 4][1:3]", "[2,3]"),
        ("[1, 2, 3, 4][::-2]", "[4,2]"),
        ("[1, 2, 3][5:]", "[]"),
        ("{'b': 1, 'a': [2]}", r#"{"a":[2],"b":1}"#),
        ("state.big", "18446744073709551615"),
        ("state.small", "-9223372036854775808"),
        ("state.big > state.small", "true"),
        ("9007199254740993 > 9007199254740992.0", "true"),
        ("range(3)", "[0,1,2]"),
        ("range(5, 0, -2)", "[5,3,1]"),
        ("dict(a=1)", r#"{"a":1}"#),
        ("(1, 2)", "[1,2]"),
    ]);
}

#[test]
fn filters_work_as_in_jinja() {
    check(&[
        ("state.map | tojson", r#""{\"a\":2,\"b\":1}""#),
        ("(state.json | fromjson).a", r#"[1,2.0,"x"]"#),
        ("' a ' | trim", r#""a""#),
        ("'xxaxx' | trim('x')", r#""a""#),
        ("'a,b,c' | split(',')", r#"["a","b","c"]"#),
        ("'a  b c' | split", r#"["a","b","c"]"#),
        ("'a  b c' | split(none, 1)", r#"["a","b c"]"#),
        ("'a\nb' | lines", r#"["a","b"]"#),
        ("[1, 'a', true] | join(', ')", r#""1, a, true""#),
        ("state.authors | map(attribute='name') | join(' ')", r#""Ada Bob cy""#),
        ("state.authors | map(attribute='town', default='?') | list", r#"["?","?","?"]"#),
        ("inputs.tags | map('upper')", r#"["B","A","C","A"]"#),
        ("['a-b'] | map('replace', '-', '+')", r#"["a+b"]"#),
        ("[1, 2, 3, 4] | select('even')", "[2,4]"),
        ("[1, 2, 3, 4] | reject('>', 2)", "[1,2]"),
        ("[0, 1, '', 'a'] | select", r#"[1,"a"]"#),
        ("state.authors | selectattr('age', 'gt', 30) | map(attribute='name')", r#"["Ada","cy"]"#),
        ("state.authors | rejectattr('age', 'eq', 36) | length", "1"),
        ("state.authors | selectattr('town', 'defined')", "[]"),
        ("inputs.tags | sort", r#"["A","a","b","c"]"#),
        ("inputs.tags | sort(case_sensitive=true, reverse=true)", r#"["c","b","a","A"]"#),
        ("state.authors | sort(attribute='age') | map(attribute='name')", r#"["Bob","Ada","cy"]"#),
        ("inputs.tags | unique", r#"["b","A","c"]"#),
        ("state.authors | groupby('age') | map('first')", "[25,36]"),
        ("state.page | length", "9"),
        ("state.missing | default('x')", r#""x""#),
        ("state.missing.deep[0] | default('x')", r#""x""#),
        ("state.none | default('x')", "null"),
        ("state.none | default('x', true)", r#""x""#),
        ("state.empty | first | default(0)", "0"),
        ("state.page | replace('Bees', 'They')", r#""They fly.""#),
        ("'aaa' | replace('a', 'b', 2)", r#""bba""#),
        ("'ab' | upper ~ ('AB' | lower)", r#""ABab""#),
        ("'hello world' | title", r#""Hello World""#),
        ("'HELLO' | capitalize", r#""Hello""#),
        ("[1, 2, 3] | first", "1"),
        ("[1, 2, 3] | last", "3"),
        ("'one two three four' | truncate(12)", r#""one two...""#),
        ("'one two three four' | truncate(12, true)", r#""one two t...""#),
        ("'short' | truncate(3)", r#""short""#),
        ("2.567 | round(1)", "2.6"),
        ("2.5 | round", "3.0"),
        ("2.1 | round(0, 'ceil')", "3.0"),
        ("3 | round(2)", "3"),
        ("' 12 ' | int", "12"),
        ("'12.9' | int", "12"),
        ("'x' | int(0)", "0"),
        ("'1.5' | float", "1.5"),
        ("1 | string", r#""1""#),
        ("state.map | items", r#"[["a",2],["b",1]]"#),
        ("state.map | dictsort(by='value')", r#"[["b",1],["a",2]]"#),
        ("state.map | keys | join + (state.map | values | sum | string)", r#""ab3""#),
        ("[1, 2, 3] | batch(2)", "[[1,2],[3]]"),
        ("[1, 2, 3] | batch(2, 0)", "[[1,2],[3,0]]"),
        ("[1, 2, 3] | slice(2)", "[[1,2],[3]]"),
        ("[3, 1, 2] | min", "1"),
        ("state.authors | max(attribute='age') | attr('name')", r#""Ada""#),
        ("'a\nb' | indent(2)", r#""a\n  b""#),
        ("[1, 2] | reverse", "[2,1]"),
        ("'a b' | wordcount", "2"),
        ("-3 | abs", "3"),
        ("[1] | tojson(indent=2)", r#""[\n  1\n]""#),
        ("state.page is string and 1 is number and 1 is integer and 1.0 is float", "true"),
        ("state.none is none and state.map is mapping and state.empty is sequence", "true"),
        ("state.missing is defined or state.a.b.c is defined", "false"),
        ("state.missing is not defined", "true"),
        ("3 is odd and 9 is divisibleby 3 and 'ab' is startingwith 'a'", "true"),
        ("2 is in [1, 2] and 2 is eq 2 and 3 is gt 2", "true"),
    ]);
}

#[test]
fn a_text_that_is_one_expression_keeps_its_type() {
    let render = |source: &str| Template::of_text(source).unwrap().render(&scope()).unwrap();
    assert_eq!(render("{{ inputs.depth }}"), json!(2));
    assert_eq!(render("{{ state.authors }}\n"), scope().names["state"]["authors"]);
    assert_eq!(render("{{- state.yes -}}"), json!(true));
    assert_eq!(render(" {{ inputs.depth }}"), json!(" 2"));
    assert_eq!(render("{{ inputs.depth }}{{ inputs.depth }}"), json!("22"));
    assert_eq!(render("no { braces }"), json!("no { braces }"));
    let value = json!({"a": ["{{ inputs.depth }}", 1, {"b": "x{{ state.none }}"}], "{{ key }}": null});
    let rendered = Template::compile(&value).unwrap().render(&scope()).unwrap();
    assert_eq!(rendered, json!({"a": [2, 1, {"b": "xnull"}], "{{ key }}": null}));
}

#[test]
fn texts_have_statements() {
    assert_eq!(
        text("{% for a in state.authors %}{{ loop.index }}. {{ a.name }}{{ ', ' if not loop.last }}{% endfor %}"),
        "1. Ada, 2. Bob, 3. cy"
    );
    assert_eq!(text("{% for k, v in state.map | items if v > 1 %}{{ k }}{{ loop.length }}{% else %}none{% endfor %}"), "a1");
    assert_eq!(text("{% for x in state.empty %}x{% else %}none{% endfor %}"), "none");
    assert_eq!(text("{% if inputs.depth > 2 %}deep{% elif inputs.depth == 2 %}middle{% else %}flat{% endif %}"), "middle");
    assert_eq!(text("{% set x = 1 %}{% for i in range(3) %}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}"), "2221");
    assert_eq!(text("{% set x %}a{{ inputs.depth }}{% endset %}{{ x }}{{ x }}"), "a2a2");
    assert_eq!(text("{% set a, b = [1, 2] %}{{ b }}{{ a }}"), "21");
    assert_eq!(text("{% for i in range(4) %}{{ loop.cycle('a', 'b') }}{% endfor %}"), "abab");
    assert_eq!(text("{% raw %}{{ x }}{% endraw %}{# comment #}"), "{{ x }}");
    assert_eq!(text("values: {{ state.map }} {{ state.ratio }} {{ state.yes }}\n"), "values: {\"a\":2,\"b\":1} 0.5 true\n");
}

#[test]
fn what_does_not_exist_is_named() {
    for (source, message) in [
        ("state.pgae", "`state.pgae` does not exist; did you mean `page`?"),
        ("stat.page", "`stat` does not exist; did you mean `state`?"),
        ("nothing", "`nothing` does not exist; there is `inputs`, `state`"),
        ("inputs.topic.name", "`inputs.topic` is a text and has no field `name`"),
        ("state.none.x", "`state.none` is null and has no field `x`"),
        ("state.authors[7]", "`state.authors` has 3 items, and none at 7"),
        ("state.map['c']", "`state.map.c` does not exist; there is `a`, `b`"),
        ("state.page | uper", "the filter `uper` does not exist; did you mean `upper`?"),
        ("state.page is strin", "the test `strin` does not exist; did you mean `string`?"),
        ("debug()", "the function `debug` does not exist; there is `dict`, `range`"),
        ("now()", "the function `now` does not exist; there is `dict`, `range`"),
        ("state.page.upper()", "values have no methods, and no `upper`; use the filter: `| upper`"),
        ("[] | first", "a list is empty and has no first item"),
        ("state.authors | map(attribute='nmae')", "an item has no `nmae`; did you mean `name`?"),
        ("[1] | map('uper')", "the filter `uper` does not exist; did you mean `upper`?"),
        ("loop.index", "`loop` exists in a `for` only, with `index`, `index0`, `first`, `last`, `length`, `cycle(..)`"),
    ] {
        let error = refused(source);
        assert_eq!((error.message.as_str(), error.kind), (message, Kind::Undefined), "{source}");
    }
}

#[test]
fn operations_on_wrong_values_are_refused() {
    for (source, message) in [
        ("'a' + 1", "`+` does not add a text and a number; `~` joins them as texts"),
        ("{} - 1", "`-` does not work on a map and a number"),
        ("1 < 'a'", "a number and a text have no order"),
        ("1 / 0", "a number is divided by zero"),
        ("1 % 0", "a number is divided by zero"),
        ("'x' | int", "`x` is no integer; `int(0)` has a default"),
        ("[1, 'a'] | sort", "a number and a text have no order"),
        ("'{' | fromjson", "the text is not JSON: EOF while parsing an object at line 1 column 1"),
        ("'a' | replace('a')", "the filter `replace` needs the argument `new`"),
        ("'a' | upper(1)", "the filter `upper` takes 0 arguments at most, not 1"),
        ("[1] | join(by=1)", "the filter `join` has no argument `by`; there is `attribute`, `d`"),
        ("[1] | map('map', 'upper')", "`map` does not take the filter `map`"),
        ("1 | length", "a number has no length"),
        ("{1: 2}", "the keys of a map are texts, not a number"),
    ] {
        let error = refused(source);
        assert_eq!((error.message.as_str(), error.kind), (message, Kind::Type), "{source}");
    }
}

#[test]
fn syntax_errors_have_a_place() {
    let error = refused("1 + ");
    assert_eq!((error.kind, error.source.as_str()), (Kind::Syntax, "1 + "));
    assert_eq!(
        text_refused("a\nb {{ state.pgae }} c").to_string(),
        "`state.pgae` does not exist; did you mean `page`?, at `state.pgae }} c` in line 2 of the text"
    );
    assert_eq!(text_refused("a {% include 'x' %}").kind, Kind::Syntax);
    assert_eq!(text_refused("a {% macro x() %}{% endmacro %}").kind, Kind::Syntax);
    assert_eq!(text_refused("a {% import 'x' as y %}").kind, Kind::Syntax);
    assert_eq!(text_refused("a {% extends 'x' %}").kind, Kind::Syntax);
    assert_eq!(
        text_refused("{% with a = 1 %}{% endwith %}").message,
        "`{% with %}` does not exist here; the statements are `if`, `for`, `set` and `raw`"
    );
    assert_eq!(text_refused("a {{ b").kind, Kind::Syntax);
    assert_eq!(text_refused("a {% if b %}").kind, Kind::Syntax);
    assert_eq!(text_refused("{% for x in [1] recursive %}{% endfor %}").kind, Kind::Syntax);
    let place = |source: &str| refused(source).offset;
    assert_eq!(place("1 + state.x"), Some(4));
    assert_eq!(place("{{ 1 + state.x }}"), Some(7));
    assert_eq!(place("'ä' ~ state.x"), Some(7));
}

#[test]
fn names_are_paths_without_bound_and_guarded_ones() {
    let names = |source: &str| -> Vec<String> {
        Expression::compile(source).unwrap().names().iter().map(|path| path.join(".")).collect()
    };
    assert_eq!(names("state.page | length > inputs.limit"), ["inputs.limit", "state.page"]);
    assert_eq!(names("state['page'].x[inputs.i].y"), ["inputs.i", "state.page.x"]);
    assert_eq!(names("state.page[1:state.end]"), ["state.end", "state.page"]);
    assert_eq!(names("state.a is defined and state.a.b > 1 or c | default(d)"), ["d"]);
    let names =
        |source: &str| -> Vec<String> { Template::of_text(source).unwrap().names().iter().map(|path| path.join(".")).collect() };
    assert_eq!(
        names("{% for x in state.xs if x.ok %}{{ x.name }}{{ loop.index }}{{ y }}{% endfor %}{{ x }}"),
        ["state.xs", "x", "y"]
    );
    assert_eq!(names("{% set a = a.b %}{{ a.c }}"), ["a.b"]);
    let value = json!({"k": ["{{ a.b }}", {"x": "{{ c }} {{ a.b }}"}]});
    assert_eq!(Template::compile(&value).unwrap().names(), [vec!["a".to_owned(), "b".to_owned()], vec!["c".to_owned()]]);
    assert!(Template::compile(&json!(["a", 1])).unwrap().is_constant());
}

#[test]
fn large_results_are_refused_before_they_are_made() {
    for source in [
        "'x' * 1000000000",
        "'x' * 10000000 ~ 'x' * 10000000",
        "[0] * 1000000000",
        "range(1000000000)",
        "range(0, -1000000, -1)",
        "2 ** 64",
        "9223372036854775807 * 4",
        "99999999999999999999999",
        "1e308 * 10",
        "range(10000) | join('x' * 10000)",
        "('x' * 10000000) | replace('x', 'xxxxxxxx')",
        "('x' * 1000000) | replace('', 'x' * 1000000)",
        "('x' * 10000000) | tojson | tojson | tojson | tojson | tojson | tojson | tojson",
        "[1] | batch(1000000000, 0)",
        "[1] | slice(1000000000)",
        "('\n' * 1000000) | indent(100, true, true)",
        "'x' | indent('x' * 10000000, true) | indent('x' * 10000000, true)",
        "('[' * 1000000) | fromjson",
        "('[1,' * 1000) | fromjson",
        "'1' | int + 18446744073709551615",
    ] {
        let kind = refused(source).kind;
        assert!(matches!(kind, Kind::TooLarge | Kind::OutOfFuel | Kind::Type), "{source}: {kind:?}");
    }
    let doubled = format!("{{% set a = 'xxxxxxxx' %}}{}{{{{ a | length }}}}", "{% set a = a ~ a %}".repeat(60));
    assert!(matches!(text_refused(&doubled).kind, Kind::TooLarge | Kind::OutOfFuel));
    let doubled = format!("{{% set a = [1, 2] %}}{}{{{{ a | length }}}}", "{% set a = a + a %}".repeat(60));
    assert!(matches!(text_refused(&doubled).kind, Kind::TooLarge | Kind::OutOfFuel));
    let shared = format!("{{% set a = [1] %}}{}{{{{ a }}}}", "{% set a = [a, a] %}".repeat(60));
    assert!(matches!(text_refused(&shared).kind, Kind::TooLarge | Kind::OutOfFuel));
    let shared = format!("{{% set a = [1] %}}{}{{{{ a == a }}}}", "{% set a = [a, a] %}".repeat(60));
    assert!(matches!(text_refused(&shared).kind, Kind::TooLarge | Kind::OutOfFuel));
    let deep = format!("{{% set a = [1] %}}{}", "{% set a = [a] %}".repeat(100));
    assert!(matches!(text_refused(&deep).kind, Kind::TooLarge | Kind::OutOfFuel));
    let captured = format!("{{% set a %}}xxxxxxxx{{% endset %}}{}", "{% set a %}{{ a }}{{ a }}{% endset %}".repeat(60));
    assert!(matches!(text_refused(&captured).kind, Kind::TooLarge | Kind::OutOfFuel));
}

/// A flow may put its state into itself again and again.
#[test]
fn values_cannot_grow_deeper_without_end() {
    let template = Template::compile(&json!([{"x": "{{ state }}"}])).unwrap();
    let mut state = json!(1);
    let refused = loop {
        match template.render(&Scope::new().with("state", &state)) {
            Ok(deeper) => state = deeper,
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind, Kind::TooLarge);
    assert!(serde_json::from_str::<Value>(&state.to_string()).is_ok());
}

#[test]
fn long_loops_run_out_of_fuel() {
    let nested =
        "{% for a in range(10000) %}{% for b in range(10000) %}{% for c in range(10000) %}{% endfor %}{% endfor %}{% endfor %}";
    assert_eq!(text_refused(nested).kind, Kind::OutOfFuel);
    assert_eq!(text_refused(&format!("{{% for a in range(10000) %}}{}{{% endfor %}}", "x".repeat(60_000))).kind, Kind::TooLarge);
    let searched = "{% set t = 'x' * 1000000 %}{% for a in range(10000) %}{{ 'y' in t }}{% endfor %}";
    assert_eq!(text_refused(searched).kind, Kind::OutOfFuel);
    let indexed = "{% set t = 'x' * 1000000 %}{% for a in range(10000) %}{{ t[999999] }}{% endfor %}";
    assert_eq!(text_refused(indexed).kind, Kind::OutOfFuel);
    let list = Value::Array(vec![json!(1); 100_001]);
    let scope = Scope::new().with("list", &list);
    let sorted = Expression::compile("list | sort").unwrap().eval(&scope);
    assert_eq!(sorted.unwrap_err().kind, Kind::OutOfFuel);
    assert_eq!(Expression::compile("list | length").unwrap().eval(&scope).unwrap(), json!(100_001));
}

#[test]
fn deep_texts_do_not_overflow_the_stack() {
    let sources = [
        "(".repeat(10_000) + "1" + &")".repeat(10_000),
        "(".repeat(4_000) + "1" + &")".repeat(4_000),
        "[".repeat(4_000) + &"]".repeat(4_000),
        "not ".repeat(2_000) + "1",
        "-".repeat(9_000) + "1",
        "1".to_owned() + &" + 1".repeat(2_000),
        "a".to_owned() + &".a".repeat(4_000),
        "a".to_owned() + &"|abs".repeat(2_000),
        "1 if 0 else ".repeat(800) + "1",
        "a".to_owned() + &" is defined".repeat(800),
        "a(".repeat(4_000),
        "a[".repeat(4_000),
        "x".repeat(1 << 20),
        "'".to_owned() + &"x".repeat(1 << 20) + "'",
    ];
    // What is allowed at most, in the forms that need the most stack.
    let nested = limits::NESTING - 1;
    let chain = limits::OPERATORS - 2 * limits::NESTING;
    let allowed = [
        "(".repeat(nested) + &"not ".repeat(chain) + "1" + &")".repeat(nested),
        "(".repeat(nested) + &"-".repeat(chain) + "1" + &")".repeat(nested),
        "(".repeat(nested) + "1" + &" + 1".repeat(chain) + &")".repeat(nested),
        "[".repeat(nested) + "1" + &"|abs".repeat(chain) + &"]".repeat(nested),
        "1 if 0 else ".repeat(limits::OPERATORS / 2) + "1",
        "(".repeat(nested) + "1" + &" ~ 1".repeat(chain) + &")".repeat(nested),
        "1|default(".repeat(nested) + "1" + &")".repeat(nested),
    ];
    let blocks = [
        "{% if 1 %}".repeat(10_000) + &"{% endif %}".repeat(10_000),
        "{% if 0 %}".to_owned() + &"{% elif 0 %}".repeat(10_000) + "{% endif %}",
        "{% for a in [1] %}".repeat(10_000) + &"{% endfor %}".repeat(10_000),
        "{% set a %}".repeat(10_000) + &"{% endset %}".repeat(10_000),
        "{% if 1 %}{% set a %}".repeat(5_000),
        "{{ ".repeat(10_000),
        "{{ ".repeat(100_000),
        "\n".repeat(100_000) + "{{ ",
        "x".repeat(100_000) + "{{ ''",
        "{% raw %}".repeat(10_000),
        "{% filter upper %}".repeat(10_000),
        "{% with a = 1 %}".repeat(10_000),
    ];
    let inner = "{{ ".to_owned() + &"(".repeat(nested) + "1" + &")".repeat(nested) + " }}";
    let nested_blocks = "{% for a in [1] %}".repeat(nested) + &inner + &"{% endfor %}".repeat(nested);
    let work = move || {
        for source in &sources {
            let _ = refused(source);
        }
        for source in &allowed {
            let _ = Expression::compile(source).unwrap().eval(&scope());
        }
        for source in &blocks {
            let _ = text_refused(source);
        }
        assert_eq!(text(&nested_blocks), "1");
    };
    std::thread::Builder::new().stack_size(1 << 20).spawn(work).unwrap().join().unwrap();
}

/// Renders random templates over random scopes twice: the results are equal, and none of them panics.
#[test]
fn rendering_is_total_and_deterministic() {
    let seed = std::env::var("ONWARD_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0x5eed_u64);
    println!("seed {seed}");
    let mut random = Random(seed);
    for _ in 0..3_000 {
        let source = random.template();
        let scope = Scope::new().with("a", &random.value(3)).with("b", &random.value(3)).with("c", &random.value(1));
        let Ok(template) = Template::of_text(&source) else { continue };
        let first = template.render(&scope);
        let again = Template::of_text(&source).and_then(|template| template.render(&scope.clone()));
        assert_eq!(first, again, "{source}");
        if let Err(error) = first {
            let offset = error.offset.unwrap_or(0);
            assert!(error.source.is_char_boundary(offset) && !error.message.is_empty(), "{source}: {error:?}");
        }
    }
}

/// A generator of numbers for tests (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % limit as u64) as usize
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }

    fn value(&mut self, depth: usize) -> Value {
        match self.below(if depth == 0 { 6 } else { 8 }) {
            0 => Value::Null,
            1 => json!(self.below(2) == 0),
            2 => json!(self.below(10)),
            3 => json!(-(self.below(10) as f64) / 4.0),
            4 => json!(self.pick(&["", "x", "Äö", "a b,c", "\u{1F41D}", "[1]", "12"])),
            5 => [json!(u64::MAX), json!(i64::MIN), json!(1e300)][self.below(3)].clone(),
            6 => Value::Array((0..self.below(4)).map(|_| self.value(depth - 1)).collect()),
            _ => (0..self.below(4)).map(|_| (self.pick(&["a", "b", "x"]).to_owned(), self.value(depth - 1))).collect(),
        }
    }

    fn template(&mut self) -> String {
        let mut out = String::new();
        for _ in 0..=self.below(3) {
            let (first, second) = (self.expression(3), self.expression(2));
            out += &match self.below(7) {
                0 => format!("text {first}"),
                1 => format!("{{% if {first} %}}{{{{ {second} }}}}{{% endif %}}"),
                2 => format!("{{% for x in {first} %}}{{{{ {second} }}}}{{{{ loop.index }}}}{{% endfor %}}"),
                3 => format!("{{% set x = {first} %}}{{{{ {second} }}}}"),
                _ => format!("{{{{ {first} }}}}"),
            };
        }
        out
    }

    fn expression(&mut self, depth: usize) -> String {
        if depth == 0 {
            return self
                .pick(&["a", "b", "c", "x", "a.a", "b.x", "a[0]", "1", "2.5", "'ä'", "none", "true", "[]", "-1"])
                .to_owned();
        }
        let (left, right) = (self.expression(depth - 1), self.expression(depth - 1));
        let filter = super::builtins::FILTERS[self.below(super::builtins::FILTERS.len())].name;
        let test = super::builtins::TESTS[self.below(super::builtins::TESTS.len())].name;
        let operator = self.pick(&["+", "-", "*", "/", "//", "%", "**", "~", "==", "<", "in", "and", "or", ">="]);
        match self.below(12) {
            0..=2 => format!("({left} {operator} {right})"),
            3 | 4 => format!("({left}) | {filter}"),
            5 => format!("({left}) | {filter}({right})"),
            6 => format!("({left}) | {filter}({right}, {left})"),
            7 => format!("(({left}) is {test}({right}))"),
            8 => format!("[{left}, {right}]"),
            9 => format!("{{'a': {left}, 'x': {right}}}"),
            10 => format!("({left})[{right}:{left}]"),
            _ => format!("({left} if {right} else {left})"),
        }
    }
}
