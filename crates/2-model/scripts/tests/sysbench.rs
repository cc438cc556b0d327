//! Comparison with the sysbench program: random numbers and statements are equal.
#![allow(clippy::unwrap_used, reason = "as in tests, for their helpers")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use dbdyno_scripts::{
    Client, Driver, OptionValue, Options, Progress, Recorder, Seed, Setup, Source, UniquePosition,
};

/// sysbench's own scripts.
const SCRIPTS: &str = "/usr/share/sysbench";

/// In sysbench, prints statements instead of sending them.
const STUB: &str = include_str!("stub.lua");

fn sysbench(script: &Path, options: &[String]) -> String {
    let program = Path::new("/usr/bin/sysbench");
    assert!(program.exists(), "install the Debian package sysbench: scripts/setup.sh test");
    let output = Command::new(program)
        .args(["--rand-seed=42", "--threads=1", "--percentile=0", "--time=0", "--verbosity=0"])
        .args(options)
        .arg(script)
        .arg("run")
        .current_dir(SCRIPTS)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

fn source(path: &Path) -> Source {
    let name = path.file_name().unwrap().to_str().unwrap();
    let find = |files: &[String]| {
        let file = files.first()?;
        Some((file.clone(), std::fs::read_to_string(Path::new(SCRIPTS).join(file)).ok()?))
    };
    Source::new(name, std::fs::read_to_string(path).unwrap(), find).unwrap()
}

fn setup(options: &[(&str, &str)]) -> Setup {
    let options: Options = options
        .iter()
        .map(|(name, value)| (name.replace('-', "_"), OptionValue::Text((*value).to_owned())))
        .collect();
    Setup {
        driver: Driver::MySql,
        storage_engine: None,
        access: Arc::default(),
        options,
        client: 0,
        clients: 1,
        seed: Seed::of_sysbench(42),
        unique: UniquePosition::default(),
        time_limit: Setup::TIME_LIMIT,
        restricted: false,
    }
}

/// The statements of this many events.
fn statements(source: &Source, setup: &Setup, events: usize) -> Vec<String> {
    let mut recorder = Recorder::default();
    let mut client = Client::start(source, setup, &mut recorder).unwrap();
    for _ in 0..events {
        assert_eq!(client.event(&mut recorder).unwrap(), Progress::Event);
    }
    recorder.statements
}

fn arguments(options: &[(&str, &str)]) -> Vec<String> {
    options.iter().map(|(name, value)| format!("--{name}={value}")).collect()
}

fn script(name: &str) -> PathBuf {
    Path::new(SCRIPTS).join(name)
}

/// Compares 500 events.
fn compare(name: &str, options: &[(&str, &str)]) {
    let dir = tempfile::tempdir().unwrap();
    let wrapper = dir.path().join("wrapper.lua");
    let path = script(name);
    std::fs::write(&wrapper, format!("{STUB}\ndofile({:?})", path.to_str().unwrap())).unwrap();
    let mut args = arguments(options);
    args.push("--events=500".to_owned());
    let printed = sysbench(&wrapper, &args);
    let expected: Vec<&str> =
        printed.lines().filter_map(|line| line.strip_prefix("SQL ")).collect();
    let ours = statements(&source(&path), &setup(options), 500);
    let ours: Vec<String> = ours.iter().map(|sql| sql.replace('\n', " ")).collect();
    assert!(expected.len() >= 500, "{name}: {}", expected.len());
    for (number, (ours, expected)) in ours.iter().zip(&expected).enumerate() {
        assert_eq!(ours, expected, "{name}, statement {number}");
    }
    assert_eq!(ours.len(), expected.len(), "{name}");
}

#[test]
fn general_options_have_the_names_and_types_of_sysbench() {
    let text = "
        function event() end
        function thread_init()
           local names = {}
           for name, value in pairs(sysbench.opt) do
              names[#names + 1] = 'OPTION ' .. name .. ' ' .. type(value)
           end
           table.sort(names)
           for _, name in ipairs(names) do print(name) end
        end";
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("options.lua");
    std::fs::write(&path, text).unwrap();
    let printed = sysbench(&path, &["--events=1".to_owned()]);
    let expected: Vec<&str> = printed.lines().filter(|line| line.starts_with("OPTION ")).collect();
    let mut recorder = Recorder::default();
    Client::start(&source(&path), &setup(&[]), &mut recorder).unwrap();
    assert!(expected.len() > 30);
    assert_eq!(recorder.printed, expected);
}

#[test]
fn statements_of_reads_equal_those_of_sysbench() {
    compare("oltp_point_select.lua", &[]);
    compare("oltp_read_only.lua", &[("tables", "4"), ("table-size", "2000")]);
    compare("oltp_read_only.lua", &[("skip_trx", "on"), ("range_size", "10"), ("sum_ranges", "0")]);
    compare("select_random_points.lua", &[("random_points", "3")]);
    compare("select_random_ranges.lua", &[("number_of_ranges", "4"), ("delta", "7")]);
}

#[test]
fn statements_of_writes_equal_those_of_sysbench() {
    let options = [("tables", "3"), ("table-size", "5000")];
    for name in [
        "oltp_read_write.lua",
        "oltp_write_only.lua",
        "oltp_update_index.lua",
        "oltp_update_non_index.lua",
        "oltp_delete.lua",
        "oltp_insert.lua",
    ] {
        compare(name, &options);
    }
}

#[test]
fn statements_with_every_distribution_equal_those_of_sysbench() {
    for (distribution, option) in [
        ("uniform", ("tables", "2")),
        ("gaussian", ("rand-spec-iter", "5")),
        ("special", ("rand-spec-pct", "7")),
        ("special", ("rand-spec-res", "30")),
        ("pareto", ("rand-pareto-h", "0.4")),
    ] {
        compare("oltp_read_write.lua", &[("rand-type", distribution), option]);
    }
}

#[test]
fn random_values_equal_those_of_sysbench() {
    const TEXT: &str = "
        local ranges = {{1, 10}, {1, 1000000}, {0, 4294967294}, {7, 7}, {100, 20000}}
        function thread_init()
           for _, name in ipairs({'uniform', 'gaussian', 'special', 'pareto', 'default'}) do
              local values = {}
              for i = 1, 100000 do
                 local range = ranges[i % #ranges + 1]
                 values[i] = sysbench.rand[name](range[1], range[2])
              end
              print('VALUES ' .. name .. table.concat(values, ' '))
           end
           print('VALUES ' .. sysbench.rand.string('##-@@-#x@') .. sb_rnd())
           print('VALUES ' .. string.format('%.17g', sysbench.rand.uniform_double()))
           print('VALUES ' .. tostring(sysbench.rand.uniform_uint64()))
           print('VALUES ' .. sb_rand(1, 99) .. sb_rand_str('###') .. sb_rand_uniform(1, 9)
              .. sb_rand_gaussian(1, 99) .. sb_rand_special(1, 99))
        end
        function event() return true end";
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("values.lua");
    std::fs::write(&path, TEXT).unwrap();
    let printed = sysbench(&path, &["--events=1".to_owned()]);
    let expected: Vec<&str> = printed.lines().filter(|line| line.starts_with("VALUES")).collect();
    let mut recorder = Recorder::default();
    Client::start(&source(&path), &setup(&[]), &mut recorder).unwrap();
    assert_eq!(expected.len(), 9);
    assert!(recorder.printed == expected, "the values differ");
}
