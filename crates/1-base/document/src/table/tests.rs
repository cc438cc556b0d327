use insta::assert_snapshot;

use super::*;

/// The problems found by `read` in a text.
fn problems(text: &str, read: impl FnOnce(&mut Table<'_>)) -> String {
    let document = Document::parse("test.toml", text).unwrap();
    let mut root = document.root();
    read(&mut root);
    root.finish();
    document.finish().map_or_else(|problems| problems.to_string(), |()| "none".to_owned())
}

#[test]
fn values_of_every_type_are_read() {
    let text = r#"
            name = "quick"
            rows = 100_000
            control = true
            slice = "50ms"
            target = "0.5%"
            page = "4KiB"
            cache = 4096
            names = ["a", "b"]
            ranges = [10, 100]
            inline = { x = 1 }
            [[item]]
            word = "first"
            [[item]]
            word = "second"
        "#;
    let none = problems(text, |root| {
        assert_eq!(root.string("name").unwrap().value, "quick");
        assert_eq!(root.number_at("rows", 1..=1_000_000_u32).unwrap().value, 100_000);
        assert!(root.bool("control").unwrap().value);
        let day = Nanos::from_secs(86_400);
        assert_eq!(
            root.number_at("slice", Nanos::ZERO..=day).unwrap().value,
            Nanos::from_millis(50)
        );
        let all = Share::from_percent(100.0);
        assert_eq!(
            root.number_at("target", Share::default()..=all).unwrap().value,
            Share::from_percent(0.5)
        );
        let most = Bytes::from_mib(1);
        for (key, bytes) in [("page", 4096), ("cache", 4096)] {
            let size = root.number_at(key, Bytes::from_bytes(1)..=most).unwrap();
            assert_eq!(size.value, Bytes::from_bytes(bytes));
        }
        let names = root.strings("names").unwrap().value;
        assert_eq!(names.iter().map(|name| name.value).collect::<Vec<_>>(), ["a", "b"]);
        let ranges = root.integers("ranges").unwrap().value;
        assert_eq!(ranges.iter().map(|range| range.value).collect::<Vec<_>>(), [10, 100]);
        let mut inline = root.table("inline").unwrap();
        assert_eq!(inline.scalar("x").unwrap().value, "1");
        assert_eq!(inline.title(), "`inline`");
        inline.finish();
        let words: Vec<_> = root
            .tables("item")
            .into_iter()
            .map(|mut item| item.string("word").unwrap().value)
            .collect();
        assert_eq!(words, ["first", "second"]);
        assert_eq!(root.string("absent"), None);
    });
    assert_eq!(none, "none");
}

#[test]
fn invalid_values_are_reported() {
    let text = "name = 1\nrows = 0\ncontrol = \"yes\"\nslice = 50\nnames = [\"a\", 2]\n\
                    item = 3\ncache = -1\nmode = \"wall\"\nslip = \"50msec\"";
    let shown = problems(text, |root| {
        root.string("name");
        root.number_at("rows", 1..=10_i64);
        root.bool("control");
        root.number_at("slice", Nanos::ZERO..=Nanos::from_secs(1));
        root.strings("names");
        assert!(root.tables("item").is_empty());
        root.number_at("cache", Bytes::from_bytes(1)..=Bytes::from_kib(1));
        root.choice("mode", &[("wal", 1), ("off", 2)]);
        root.number_at("slip", Nanos::ZERO..=Nanos::from_secs(1));
    });
    assert_snapshot!(shown, @r#"
        error: `name` must be a string, not an integer
         --> test.toml:1:8
          |
        1 | name = 1
          |        ^

        error: `rows` is out of range
         --> test.toml:2:8
          |
        2 | rows = 0
          |        ^ it must be from 1 to 10

        error: `control` must be true or false, not a string
         --> test.toml:3:11
          |
        3 | control = "yes"
          |           ^^^^^

        error: `slice` must be a duration such as "50ms", not an integer
         --> test.toml:4:9
          |
        4 | slice = 50
          |         ^^

        error: `names` must be an array of strings: this is an integer
         --> test.toml:5:15
          |
        5 | names = ["a", 2]
          |               ^

        error: `item` must be an array of tables, not an integer
         --> test.toml:6:8
          |
        6 | item = 3
          |        ^

        error: `cache` is out of range
         --> test.toml:7:9
          |
        7 | cache = -1
          |         ^^ it must be from 1 B to 1 KiB

        error: unknown `mode`: `wall`
         --> test.toml:8:8
          |
        8 | mode = "wall"
          |        ^^^^^^ did you mean `wal`?

        error: `slip`: `msec` is not a unit of time
         --> test.toml:9:8
          |
        9 | slip = "50msec"
          |        ^^^^^^^^ units are ns, us, ms, s, min and h
        "#);
}

#[test]
fn one_or_more_integers_are_read() {
    let shown = problems(
        "one = 3\nmore = [1, 2]\nnone = []\nout = [1, 9]\ntext = 'x'\nmixed = [1, 'x']",
        |root| {
            let mut read = |key| {
                let list = root.one_or_more(key, 1..=5_i64)?.value;
                Some(list.into_iter().map(|one| one.value).collect::<Vec<_>>())
            };
            assert_eq!(read("one"), Some(vec![3]));
            assert_eq!(read("more"), Some(vec![1, 2]));
            assert_eq!(read("none"), Some(vec![]));
            assert_eq!(read("absent"), None);
            assert_eq!(read("out"), None);
            read("text");
            read("mixed");
        },
    );
    assert_snapshot!(shown, @r"
        error: `out` is out of range
         --> test.toml:4:11
          |
        4 | out = [1, 9]
          |           ^ it must be from 1 to 5

        error: `text` must be an integer or an array of integers, not a string
         --> test.toml:5:8
          |
        5 | text = 'x'
          |        ^^^

        error: `mixed` must be an array of integers: this is a string
         --> test.toml:6:13
          |
        6 | mixed = [1, 'x']
          |             ^^^
        ");
}

#[test]
fn settings_of_any_name_are_read() {
    let shown = problems(
        "[set]\na_b = 'x'\n\"c.d\" = -1\ne = 0.5\nf = true\ng = [1]\nh.i = 1\nj = 1979-05-27",
        |root| {
            let settings = root.table("set").unwrap().named_settings();
            let settings: Vec<_> =
                settings.into_iter().map(|(name, value)| (name.value, value.value)).collect();
            assert_eq!(
                settings,
                [
                    ("a_b", Setting::String("x")),
                    ("c.d", Setting::Integer(-1)),
                    ("e", Setting::Float(0.5)),
                    ("f", Setting::Boolean(true)),
                ]
            );
        },
    );
    assert_snapshot!(shown, @r"
        error: `g` must be a string, a number, true or false, not an array
         --> test.toml:6:5
          |
        6 | g = [1]
          |     ^^^

        error: `h` must be a string, a number, true or false, not a table
         --> test.toml:7:1
          |
        7 | h.i = 1
          | ^

        error: `j` must be a string, a number, true or false, not a datetime
         --> test.toml:8:5
          |
        8 | j = 1979-05-27
          |     ^^^^^^^^^^
        ");
}

#[test]
fn misplaced_keys_are_rejected() {
    let shown = problems("there = 1\nother = 2", |root| {
        root.number_at("other", 0..=9_i64);
        root.refuse("there", "has no place here", "put it elsewhere");
        root.refuse("absent", "has no place here", "put it elsewhere");
    });
    assert_snapshot!(shown, @r"
        error: `there` has no place here
         --> test.toml:1:1
          |
        1 | there = 1
          | ^^^^^ put it elsewhere
        ");
}

#[test]
fn unknown_and_missing_keys_are_reported() {
    let text = "nmae = 1\n[schedule]\nslcie = 1\nbudget = 2\n[[candidate]]\nx.y = 1";
    let shown = problems(text, |root| {
        root.require("name");
        root.string("name");
        let mut schedule = root.table("schedule").unwrap();
        schedule.string("slice");
        schedule.finish();
        for mut candidate in root.tables("candidate") {
            candidate.require("name");
            candidate.string("name");
            candidate.finish();
        }
    });
    assert_snapshot!(shown, @r"
        error: missing key `name`
         --> test.toml:1:1
          |
        1 | nmae = 1
          | ^

        error: unknown key `nmae`
         --> test.toml:1:1
          |
        1 | nmae = 1
          | ^^^^ did you mean `name`?

        error: unknown key `slcie` in [schedule]
         --> test.toml:3:1
          |
        3 | slcie = 1
          | ^^^^^ did you mean `slice`?

        error: unknown key `budget` in [schedule]
         --> test.toml:4:1
          |
        4 | budget = 2
          | ^^^^^^

        error: missing key `name` in [[candidate]]
         --> test.toml:5:1
          |
        5 | [[candidate]]
          | ^^^^^^^^^^^^^

        error: unknown key `x` in [[candidate]]
         --> test.toml:6:1
          |
        6 | x.y = 1
          | ^
        ");
}
