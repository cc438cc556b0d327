//! Deprecated names of keys and values: still accepted, each with a warning.

use dbdyno_spec::parse_with_warnings;

/// The same experiment with deprecated and current names. Add every renamed key and value here.
const FORMER: &str = r#"
name = "names"
baseline = "base"
[cpus]
awake = false
[checks]
audit_allows = ["lto-unasked", "hardening-unasked"]
[[candidate]]
name = "base"
system = "sqlite"
variant = "rel"
audit_allows = ["not-as-asked"]
[[candidate]]
name = "server"
system = "mariadb"
live = { stop = "20ms" }
"#;

const PRESENT: &str = r#"
name = "names"
baseline = "base"
[cpus]
prevent_idle = false
[checks]
audit_ignore = ["lto-unexpected", "hardening-unexpected"]
[[candidate]]
name = "base"
system = "sqlite"
variant = "rel"
audit_ignore = ["compile-database-mismatch"]
[[candidate]]
name = "server"
system = "mariadb"
live = { max_pause = "20ms" }
"#;

#[test]
fn deprecated_names_are_accepted_with_a_warning() {
    let (former, warnings) = parse_with_warnings("old.toml", FORMER, &crate::no_files).unwrap();
    let (present, none) = parse_with_warnings("new.toml", PRESENT, &crate::no_files).unwrap();
    assert_eq!(former, present);
    assert_eq!(none, []);
    let warnings: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "old.toml:5: `awake` is deprecated: use `prevent_idle`",
            "old.toml:7: `audit_allows` is deprecated: use `audit_ignore`",
            "old.toml:7: `lto-unasked` is deprecated: use `lto-unexpected`",
            "old.toml:7: `hardening-unasked` is deprecated: use `hardening-unexpected`",
            "old.toml:12: `audit_allows` is deprecated: use `audit_ignore`",
            "old.toml:12: `not-as-asked` is deprecated: use `compile-database-mismatch`",
            "old.toml:16: `stop` is deprecated: use `max_pause`",
        ]
    );
}
