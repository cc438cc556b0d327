//! `[profile]`.

use dbdyno_spec::experiment::Profiling;
use dbdyno_spec::parse_with_files;
use dbdyno_units::Nanos;

fn profile(lines: &str) -> Result<Option<Profiling>, String> {
    let text = format!(
        "name = 'x'\nbaseline = 'a'\n\
         [workload]\nmicrobenchmarks = ['point-query.pre_range=100', 'scan_range=100']\n\
         {lines}\n[[candidate]]\nname = 'a'\nsystem = 'mariadb'\n"
    );
    let files = |path: &str| match path {
        "rules.tsv" => Ok("*\t*\tmine\tmy layer\n".to_owned()),
        "long.tsv" => Ok("#".repeat(1 << 20)),
        _ => Err(format!("{path} does not exist")),
    };
    let parsed = parse_with_files("x.toml", &text, &files);
    parsed.map(|experiment| experiment.profile).map_err(|problems| problems.to_string())
}

#[test]
fn stacks_are_sampled_as_the_section_says() {
    assert_eq!(profile(""), Ok(None));
    assert_eq!(profile("[profile]"), Ok(Some(Profiling::default())));
    let lines = "[profile]\ntime = '2s'\nfrequency = 250\nmicrobenchmarks = ['scan*']\n\
                 layers = 'rules.tsv'";
    let some = profile(lines).unwrap().unwrap();
    assert_eq!((some.time, some.frequency), (Nanos::from_secs(2), 250));
    assert!(some.includes("scan_range=100") && !some.includes("point-query.pre_range=100"));
    let rules = some.layers.unwrap();
    assert_eq!(rules.rules, "*\t*\tmine\tmy layer\n");
    assert!(Profiling::default().includes("scan_range=100"));
}

#[test]
fn what_cannot_be_sampled_is_refused() {
    for (lines, message) in [
        ("[profile]\nmicrobenchmarks = ['point-query_range=100']", "is not measured"),
        ("[profile]\nmicrobenchmarks = ['skan_range=100']", "did you mean `scan_range=100`?"),
        ("[profile]\nmicrobenchmarks = []", "`microbenchmarks` is empty"),
        ("[profile]\nlayers = 'none.tsv'", "none.tsv does not exist"),
        ("[profile]\nlayers = 'long.tsv'", "has 1048576 bytes"),
        ("[profile]\nfrequency = 0", "out of range"),
    ] {
        let problems = profile(lines).unwrap_err();
        assert!(problems.contains(message), "{problems}");
    }
    let text = "name = 'x'\nbaseline = 'a'\n[insert_benchmark]\n[profile]\n\
                [[candidate]]\nname = 'a'\nsystem = 'mariadb'\n";
    assert!(super::shown(text).contains("the insert benchmark has no profile"));
}
