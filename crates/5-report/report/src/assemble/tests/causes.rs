//! What explains a difference: statements, engine counters, plans and profiles.

use dbdyno_types::profile::{
    Function, ModuleBuild, Profile, SliceWaits, Stack, StatementCpu, Waits,
};
use dbdyno_types::{EngineCounts, StatementTimes};

use super::*;
use crate::model::ProfilingCost;
use crate::terminal::TerminalOptions;

/// Times of statements: the candidate has twice the update's, and one statement that the baseline has not.
fn with_statements(candidate: u32, block: u32, measured: &mut SliceMeasured) {
    // The machine's speed changes from block to block.
    let speed = 10 + u64::from(block) % 3;
    let mut add = |text: &str, executions, micros| {
        let total = Nanos::from_micros(executions * micros * speed);
        measured.statement_times.push(StatementTimes { text: text.to_owned(), executions, total });
    };
    add("SELECT", 200, 5);
    add("UPDATE", 50, if candidate == 1 { 6 } else { 3 });
    if candidate == 1 {
        add("SET", 10, 1);
    }
    if block == 0 {
        add("ANALYZE", 1, 7);
    }
    measured.statements = if candidate == 1 { 2_600 } else { 2_500 };
    measured.events = 100;
}

#[test]
fn statements_are_paired_by_block_and_sorted_by_their_part_of_the_difference() {
    let mut lab = Lab::new(&servers(), &[1], (1, 1));
    lab.blocks(0, with_statements);
    let report = lab.report();
    let row = &report.microbenchmarks[0].rows[0];
    let order: Vec<&str> = row.statements.iter().map(|one| one.statement.as_str()).collect();
    assert_eq!(order, ["UPDATE", "SET", "SELECT", "ANALYZE"]);
    let [update, set, select, analyze] = &row.statements[..] else { panic!("{order:?}") };
    let estimate = update.relative.unwrap();
    assert!((estimate.median.get() - 2.0).abs() < 1e-9);
    assert_eq!((estimate.blocks, update.verdict), (10, Verdict::Worse));
    let per_event = update.executions_per_event.unwrap();
    assert!((per_event - 2_500.0 / 100.0 * 500.0 / 2_501.0).abs() < 1e-9, "{per_event}");
    let mean = update.baseline_us.unwrap();
    assert!((mean - 3.0 * 10.9).abs() < 1e-9, "{mean}");
    let difference = update.difference_us_per_event.unwrap();
    assert!((difference - per_event * mean).abs() < 1e-6, "{difference}");
    assert_eq!((select.verdict, set.verdict), (Verdict::WithinNoise, Verdict::Unknown));
    assert_eq!(
        (set.baseline_us, set.relative.is_none()),
        (None, true),
        "only the candidate has it"
    );
    assert_eq!(analyze.relative, None, "one block");

    // Of few events, the incomplete first and last ones are a large part.
    let mut lab = Lab::new(&servers(), &[1], (1, 1));
    lab.blocks(0, |candidate, block, measured| {
        with_statements(candidate, block, measured);
        measured
            .statement_times
            .iter_mut()
            .for_each(|one| one.executions = one.executions.div_ceil(10));
    });
    let few = &lab.report().microbenchmarks[0].rows[0].statements;
    assert!(few.len() == 4 && few.iter().all(|one| one.executions_per_event.is_none()));
}

#[test]
fn statement_whose_interval_is_wider_than_its_difference_is_too_noisy() {
    const MICROS: [u64; 10] = [4, 20, 4, 30, 5, 30, 6, 40, 6, 7];
    let mut lab = Lab::new(&servers(), &[1], (1, 1));
    lab.blocks(0, |candidate, block, measured| {
        let micros = if candidate == 1 { MICROS[block as usize] } else { 3 };
        measured.statement_times.push(StatementTimes {
            text: "UPDATE".to_owned(),
            executions: 50,
            total: Nanos::from_micros(50 * micros),
        });
    });
    let report = lab.report();
    let one = &report.microbenchmarks[0].rows[0].statements[0];
    assert!(!one.relative.unwrap().contains_one(), "{one:?}");
    assert_eq!(one.verdict, Verdict::TooNoisy);
}

#[test]
fn engine_counters_are_those_that_certainly_differ() {
    let mut lab = Lab::new(&servers(), &[1], (1, 1));
    lab.blocks(0, |candidate, block, measured| {
        let of_candidate = i64::from(candidate == 1);
        let varies = i64::from(block * 7 % 5);
        let mut growth = BTreeMap::from([
            ("page_requests", 3_000 + 600 * of_candidate + varies),
            ("bytes_sent", 900_000 + 90_000 * of_candidate + varies),
            ("lsn_current", 9_000 + 9_000 * of_candidate),
            ("commits", 1_000),
            ("flushes", 100 * varies),
            ("level", if block == 4 { -1 } else { 1_000 + 1_000 * of_candidate }),
            ("noisy_in_the_control", 500 + 100 * i64::from(candidate)),
            ("innodb_pages", 2_000 * (1 - of_candidate)),
        ]);
        if candidate == 1 {
            growth.insert("sorts", 1_000);
            growth.insert("rare", 0);
        }
        growth.retain(|_, growth| *growth != 0);
        let growth = growth.into_iter().map(|(name, growth)| (name.to_owned(), growth)).collect();
        measured.engine_counts = Some(EngineCounts { statements: 1_000, growth });
    });
    let report = lab.report();
    let found: Vec<(&str, f64, f64)> = report.microbenchmarks[0].rows[0]
        .engine_counters
        .iter()
        .map(|one| (one.counter.as_str(), one.baseline_per_query, one.per_query))
        .collect();
    let expected = [
        ("innodb_pages", 2.0, 0.0),
        ("sorts", 0.0, 1.0),
        ("page_requests", 3.002, 3.602),
        ("bytes_sent", 900.002, 990.002),
    ];
    assert_eq!(found, expected);
}

#[test]
fn counters_that_only_one_engine_has_come_last() {
    let mut candidates = servers();
    candidates[1].engine = Some("rocksdb".to_owned());
    let mut lab = Lab::new(&candidates, &[1], (1, 1));
    lab.blocks(0, |candidate, block, measured| {
        let varies = i64::from(block * 7 % 5);
        let growth: &[(&str, i64)] = match candidate {
            1 => &[
                ("sorts", 1_000),
                ("rocksdb_memtable_hit", 780 + varies),
                ("rocksdb_flushes", 100 * varies),
                ("rocksdb_rare", 1),
                ("innodb_pages", i64::from(block == 4)),
            ],
            _ => &[("sorts", 500), ("innodb_pages", 3_000)],
        };
        let growth = growth.iter().filter(|(_, growth)| *growth != 0);
        let growth = growth.map(|(name, growth)| ((*name).to_owned(), *growth)).collect();
        measured.engine_counts = Some(EngineCounts { statements: 1_000, growth });
    });
    let report = lab.report();
    let found = &report.microbenchmarks[0].rows[0].engine_counters;
    let found: Vec<(&str, bool)> =
        found.iter().map(|one| (one.counter.as_str(), one.only_one_has_it)).collect();
    assert_eq!(found, [("sorts", false), ("innodb_pages", true), ("rocksdb_memtable_hit", true)]);
}

#[test]
fn counters_that_one_release_lacks_are_no_growth_of_none() {
    let mut lab = Lab::new(&servers(), &[1], (1, 1));
    lab.blocks(0, |candidate, block, measured| {
        let mut growth: Vec<(&str, i64)> = vec![("sorts", 500), ("idle", 0)];
        match candidate {
            1 => growth.extend([("io.hits", 3_000), ("hash.searches", 2_000)]),
            // The baseline has the second one, too.
            _ => growth.extend([("hash.searches", 0)]),
        }
        // All are told once.
        growth.retain(|(_, growth)| *growth != 0 || block == 1);
        let growth = growth.into_iter().map(|(name, growth)| (name.to_owned(), growth)).collect();
        measured.engine_counts = Some(EngineCounts { statements: 1_000, growth });
    });
    let report = lab.report();
    let found = &report.microbenchmarks[0].rows[0].engine_counters;
    let found: Vec<(&str, bool)> =
        found.iter().map(|one| (one.counter.as_str(), one.only_one_has_it)).collect();
    assert_eq!(found, [("hash.searches", false), ("io.hits", true)]);
}

#[test]
fn plans_of_the_same_system_that_differ_are_shown() {
    let mut lab = Lab::new(&servers(), &[1], (1, 1));
    lab.blocks(0, faster);
    let mut set = |candidate, restart, lines: [&str; 2]| {
        let plan = |(number, line): (u32, &str)| StatementPlan {
            number,
            sql: format!("SELECT {number} WHERE id = ?"),
            lines: line.split('/').filter(|line| !line.is_empty()).map(str::to_owned).collect(),
        };
        let plans: Vec<StatementPlan> = (1..).zip(lines).map(plan).collect();
        lab.writer.set_plans((0, candidate, restart), &plans).unwrap();
    };
    set(0, 0, ["t: range by k_1", ""]);
    set(1, 0, ["t: ALL/u: ALL", "t: ALL"]);
    set(2, 0, ["t: ALL", "t: ALL"]);
    let row = |report: &Report| report.microbenchmarks[0].rows[0].plans.clone();
    let found = row(&lab.report());
    assert_eq!(
        found.len(),
        1,
        "one has no plan of the baseline, and the control is none: {found:?}"
    );
    assert_eq!((found[0].plan.len(), found[0].changes), (2, false));
    let mut set = |restart, line: &str| {
        let plan =
            StatementPlan { number: 1, sql: "SELECT".to_owned(), lines: vec![line.to_owned()] };
        lab.writer.set_plans((0, 0, restart), &[plan]).unwrap();
    };
    set(0, "t: const");
    set(1, "t: ALL");
    assert!(row(&lab.report())[0].changes);
    let report = lab.report();
    let options = TerminalOptions { width: 80, color: false, three_groups: false, details: true };
    let text = crate::terminal::render(&report, &options);
    assert!(text.contains("t: ALL / u: ALL; it differs between starts"), "{text}");
}

/// A profile with stacks that profiles rarely have: of the kernel, without a name, without a stack, recursive.
fn sampled(candidate: u32, restart: u32) -> ProfileRecord {
    let function = |module: &str, name: Option<&str>, start: u64| Function {
        module: module.to_owned(),
        name: name.map(str::to_owned),
        source: None,
        start,
    };
    let functions = vec![
        function("mariadbd", Some("dispatch_command"), 16),
        function("mariadbd", Some("row_search_mvcc"), 32),
        function("mariadbd", None, 48 + 16 * u64::from(candidate)),
        function("[k]", Some("__x64_sys_futex"), 0),
    ];
    let (of_start, of_candidate) = (u64::from(restart), u64::from(candidate));
    let stack = |frames: &[u32], samples| Stack { frames: frames.to_vec(), samples };
    let stacks = vec![
        stack(&[0], 300 + 7 * of_start),
        stack(&[1, 1, 0], 500 - 11 * of_start),
        stack(&[2, 1, 0], 200 * of_candidate),
        stack(&[3, 2, 1, 0], 90),
        stack(&[], 3),
    ];
    let samples = stacks.iter().map(|stack| stack.samples).sum();
    let module = "mariadbd".to_owned();
    let modules = vec![ModuleBuild { module, build: format!("build {candidate}") }];
    let profile = Profile { functions, modules, stacks, samples, cut: 2, ..Profile::default() };
    let cpu = Nanos::from_millis(600);
    ProfileRecord { candidate, restart, statements: 100_000, cpu, profile }
}

#[test]
fn rules_for_layers_are_compiled_once_for_each_sampled_system() {
    let mut candidates = servers();
    candidates[1].system = "mysql".to_owned();
    candidates[2].system = "postgresql".to_owned();
    let records: Vec<ProfileRecord> = (0..6).map(|one| sampled(one % 2, one / 2)).collect();
    let systems = |records: &[ProfileRecord]| -> Vec<String> {
        profile::layers_of(records.iter(), &candidates, None).into_keys().collect()
    };
    assert_eq!(systems(&records), ["mariadb", "mysql"]);
    assert!(systems(&[]).is_empty(), "no profile");
}

#[test]
fn rows_of_a_profile_add_up_to_the_measured_difference() {
    let profiling = serde_json::json!({
        "schedule": { "restarts": 3 }, "profile": { "time": 4_000_000_000_u64 }
    });
    let mut lab = Lab::of(&servers(), &[1], (1, 1), profiling);
    for restart in 0..3 {
        for block in 0..6 {
            lab.block(0, restart, 10 * restart + block, |candidate, block, measured| {
                let server = measured.server.as_mut().unwrap();
                let of_candidate = 1_300 * u64::from(candidate % 2);
                let micros = 5_000 + of_candidate + u64::from(40 * block + 200 * restart);
                server.cpu = Nanos::from_micros(micros);
                server.background_cpu = Some(Nanos::from_micros(900));
            });
        }
        // One start of the candidate has none.
        for candidate in (0..3).filter(|candidate| (*candidate, restart) != (1, 2)) {
            lab.writer.set_profile(0, &sampled(candidate, restart)).unwrap();
        }
    }
    let report = lab.report();
    let member = &report.microbenchmarks[0];
    let row = &member.rows[0];
    let profile = row.profile.as_ref().unwrap();
    let of_slices =
        |one: &Absolute| one.cpu_us_per_query.unwrap() - one.background_cpu_us_per_query.unwrap();
    let measured = of_slices(&row.absolute) - of_slices(&member.baseline);
    assert!(measured > 1.0, "{measured}");
    for rows in [&profile.layers, &profile.functions] {
        let sum: f64 = rows.iter().map(model::ProfileRow::difference).sum();
        assert!((sum / measured - 1.0).abs() < 0.02, "{sum} instead of {measured}: {rows:?}");
    }
    let [own, base] = profile.stacks.each_ref().map(|stacks| stacks.total_us());
    assert!(((own - base) / measured - 1.0).abs() < 0.02, "{own} {base} {measured}");
    assert_eq!(profile.system_calls[0].name, "kernel: futex");
    let below = profile.functions.iter().find(|one| one.name == "unnamed below row_search_mvcc");
    assert!(below.is_some_and(|one| one.baseline_us == 0.0), "{:?}", profile.functions);
    assert_eq!(profile.unnamed.map(|share| share.as_percent().round()), [18.0, 0.0]);
    assert_eq!(profile.asked_cpu, Some(Nanos::from_secs(4)));
    assert_eq!(profile.sampled_cpu, [2, 3].map(|starts| Nanos::from_millis(600 * starts)));
    // Without slices among the sampled ones that were not sampled, relative to the measured ones.
    let cost = profile.cost[1].unwrap().relative_cpu.get();
    let cpu_us = 600.0e3 / 100_000.0;
    assert!((cost * of_slices(&member.baseline) / cpu_us - 1.0).abs() < 0.02, "{cost}");
}

#[test]
fn cost_of_sampling_and_recording_is_relative_to_slices_among_the_others() {
    let profiling = serde_json::json!({ "schedule": { "restarts": 2 }, "profile": {} });
    let mut lab = Lab::of(&servers(), &[1], (1, 1), profiling);
    for restart in 0..2 {
        (0..4).for_each(|block| lab.block(0, restart, 10 * restart + block, |_, _, _| {}));
        for candidate in 0..2 {
            let mut record = sampled(candidate, restart);
            // 600 ms for 100,000 statements are 1.02 and, in the second start, 1.03 times that.
            let cost = 1.02 + 0.01 * f64::from(restart);
            let cpu = Nanos::from_secs_f64(0.06 / cost);
            let beside = Some(StatementCpu { statements: 10_000, cpu });
            let slice = SliceWaits {
                block: 1,
                clients: 1,
                statements: record.statements,
                wall: Nanos::from_secs(1),
                cpu: record.cpu,
                ..SliceWaits::default()
            };
            let waits = Waits { slices: vec![slice], unrecorded: beside, ..Waits::default() };
            lab.writer.set_waits((0, candidate, restart), &waits).unwrap();
            record.profile.unsampled = beside;
            lab.writer.set_profile(0, &record).unwrap();
        }
    }
    let report = lab.report();
    let row = &report.microbenchmarks[0].rows[0];
    let [sampling, recording] =
        [row.profile.as_ref().unwrap().cost, row.waits.as_ref().unwrap().cost];
    for cost in sampling.into_iter().chain(recording) {
        let ProfilingCost { relative_cpu, interval } = cost.unwrap();
        assert!((relative_cpu.get() - 1.025).abs() < 1e-4, "{cost:?}");
        let [low, high] = interval.unwrap().map(Ratio::get);
        assert!((0.9..1.02).contains(&low) && (1.03..1.1).contains(&high), "{low} to {high}");
    }
}
