//! Generated profiles of two storage engines.

use dbdyno_profile::{Layers, Titles};
use dbdyno_types::profile::{Function, Profile, Stack};
use dbdyno_units::{Nanos, Ratio};

use super::{Draw, servers_of};
use crate::assemble::profile::{Sampled, difference};
use crate::model::{
    MicrobenchmarkRows, ProfileDifference, ProfilingCost, RelativeCounter, Report, Role, Stacks,
};

const STARTS: usize = 2;

/// The sample of servers with sampled stacks and a counter of the engine.
pub fn profiled(microbenchmarks: &[&str]) -> Report {
    let mut report = servers_of(microbenchmarks);
    for (index, member) in report.microbenchmarks.iter_mut().enumerate() {
        add_profiles(member, &mut Draw(20_260_301 + index as u64));
    }
    report
}

fn add_profiles(member: &mut MicrobenchmarkRows, draw: &mut Draw) {
    let baseline_us = member.baseline.cpu_us_per_query.unwrap_or_default();
    let base: Vec<Profile> = (0..STARTS).map(|_| profile(draw, |(_, innodb, _)| innodb)).collect();
    let layers = Layers::of("mariadb");
    let titles = Titles::of(&base);
    let mut control: Option<ProfileDifference> = None;
    // The control is the last.
    for row in member.rows.iter_mut().rev() {
        let weight: fn(Weighted) -> f64 = match row.role {
            Role::Candidate => |(.., myrocks)| myrocks,
            Role::Baseline | Role::Control => |(_, innodb, _)| innodb,
        };
        let own: Vec<Profile> = (0..STARTS).map(|_| profile(draw, weight)).collect();
        let us = row.absolute.cpu_us_per_query.unwrap_or_default();
        let starts: Vec<[Sampled<'_>; 2]> = own
            .iter()
            .zip(&base)
            .map(|(own, base)| {
                [Sampled { cpu: us, profile: own }, Sampled { cpu: baseline_us, profile: base }]
            })
            .collect();
        let mut found = difference(&starts, [&layers; 2], &titles, control.as_ref());
        found.cost = [(1.024, Some([1.011, 1.037])), (1.019, None)].map(|(cost, interval)| {
            let interval = interval.map(|ends| ends.map(Ratio::new));
            Some(ProfilingCost { relative_cpu: Ratio::new(cost), interval })
        });
        found.sampled_cpu = [Nanos::from_millis(4_016), Nanos::from_millis(2_290)];
        found.asked_cpu = Some(Nanos::from_secs(4));
        let half = 0.01 * baseline_us;
        found.interval_us = Some([us - baseline_us - half, us - baseline_us + half]);
        if row.role == Role::Control {
            found.stacks = [Stacks::default(), Stacks::default()];
            control = Some(found.clone());
        } else {
            row.engine_counters.push(RelativeCounter {
                counter: "Rocksdb_memtable_hit".to_owned(),
                baseline_per_query: 0.0,
                per_query: 0.78,
                relative: None,
                only_one_has_it: true,
            });
        }
        row.profile = Some(found);
    }
}

/// A stack, and its typical samples in a start of each engine.
type Weighted = (&'static str, f64, f64);

fn profile(draw: &mut Draw, weight: impl Fn(Weighted) -> f64) -> Profile {
    let mut profile = Profile { cut: 3, ..Profile::default() };
    for one in STACKS {
        let mean = weight(one);
        // Nearly as counts vary.
        let samples = (mean + mean.sqrt() * draw.normal()).round().max(0.0) as u64;
        let text = one.0.replace("STATEMENT", STATEMENT).replace("NEXT", NEXT);
        let mut frames: Vec<u32> = text.split('|').map(|name| number(&mut profile, name)).collect();
        frames.reverse();
        if samples > 0 {
            profile.stacks.push(Stack { frames, samples });
            profile.samples += samples;
        }
    }
    profile
}

/// The number of a function: of the kernel with `[k]` before its name, without a name with its source file after `?`.
fn number(profile: &mut Profile, text: &str) -> u32 {
    let (module, name, source) = match (text.strip_prefix("[k]"), text.strip_prefix('?')) {
        (Some(name), _) => ("[k]", Some(name), None),
        (None, Some(source)) => ("mariadbd", None, Some(source)),
        (None, None) if text.contains("rocksdb::") => ("ha_rocksdb.so", Some(text), None),
        (None, None) if text.starts_with("mem") => ("libc.so.6", Some(text), None),
        (None, None) => ("mariadbd", Some(text), None),
    };
    let [name, source] = [name, source].map(|text| text.map(str::to_owned));
    let function = Function { module: module.to_owned(), name, source, start: 0 };
    let known = profile.functions.iter().position(|one| *one == function);
    let number = known.unwrap_or(profile.functions.len());
    if known.is_none() {
        profile.functions.push(function);
    }
    number as u32
}

const STATEMENT: &str = "handle_one_connection|do_command|dispatch_command|mysql_execute_command";

const NEXT: &str = "handle_one_connection|do_command|dispatch_command|mysql_execute_command|JOIN::exec|\
     sub_select|handler::ha_index_next";

/// MyRocks needs about 1.75 times the CPU time, so that the same work has fewer samples there.
const STACKS: [Weighted; 23] = [
    ("handle_one_connection|do_command|vio_write|[k]__x64_sys_sendto|[k]tcp_sendmsg", 700.0, 400.0),
    ("handle_one_connection|do_command|vio_read|[k]__x64_sys_recvfrom|[k]schedule", 240.0, 140.0),
    ("STATEMENT", 90.0, 52.0),
    ("STATEMENT|MYSQLparse", 60.0, 34.0),
    ("STATEMENT|my_malloc|malloc", 100.0, 130.0),
    ("STATEMENT|JOIN::optimize|best_access_path", 480.0, 275.0),
    ("STATEMENT|JOIN::optimize|handler::multi_range_read_info_const|?row0sel.cc", 200.0, 0.0),
    ("STATEMENT|JOIN::exec|sub_select|select_send::send_data|Protocol::store", 300.0, 240.0),
    (
        "STATEMENT|JOIN::exec|sub_select|Item_func_between::val_int|Field_long::val_int",
        200.0,
        150.0,
    ),
    ("STATEMENT|JOIN::exec|filesort|qsort_step|qsort_step|qsort_step", 50.0, 28.0),
    ("NEXT|?row0sel.cc", 900.0, 0.0),
    ("NEXT|?row0sel.cc|?page0cur.cc", 400.0, 0.0),
    ("NEXT|?row0sel.cc|memcpy", 160.0, 0.0),
    ("NEXT|?rem0cmp.cc", 120.0, 0.0),
    ("NEXT|myrocks::ha_rocksdb::index_next", 0.0, 130.0),
    ("NEXT|myrocks::ha_rocksdb::index_next|rocksdb::DBIter::Next", 0.0, 700.0),
    (
        "NEXT|myrocks::ha_rocksdb::index_next|rocksdb::DBIter::Next|rocksdb::MergingIterator::Next|\
         rocksdb::MemTableIterator::Next",
        0.0,
        650.0,
    ),
    (
        "NEXT|myrocks::ha_rocksdb::index_next|rocksdb::DBIter::Next|rocksdb::MergingIterator::Next|\
         rocksdb::BlockIter<rocksdb::IndexValue>::BinarySeek",
        0.0,
        420.0,
    ),
    (
        "NEXT|myrocks::ha_rocksdb::index_next|rocksdb::DBIter::Next|rocksdb::MergingIterator::Next|\
         rocksdb::BlockIter<rocksdb::IndexValue>::BinarySeek|memcmp",
        0.0,
        160.0,
    ),
    ("NEXT|myrocks::ha_rocksdb::index_next|rocksdb::PinnableSlice::PinSelf|memcpy", 0.0, 190.0),
    ("start_thread|?buf0flu.cc|?os0file.cc", 20.0, 11.0),
    ("start_thread|?srv0srv.cc", 2.0, 1.0),
    ("start_thread|rocksdb::ThreadPoolImpl::BGThread", 0.0, 3.0),
];
