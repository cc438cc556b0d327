//! Callers in samples of a running program.

use std::collections::HashMap;
use std::time::Duration;

use dbdyno_live::{
    Attachment, SampleSource, SamplingOptions, hot_modules, map_to_original, optimize, sample,
};
use dbdyno_relayout::{Options, Samples};

use crate::copies::attach;
use crate::killed::assert_undoable;
use crate::victim::Program;

/// Samples with stacks. `None`: branches are recorded instead.
fn samples(attachment: &Attachment) -> Option<Samples> {
    let sampling = SamplingOptions {
        time: Duration::from_millis(1_000),
        frequency: 3_999,
        stacks: true,
        ..SamplingOptions::default()
    };
    let sampled = sample(attachment.process().pid(), false, &sampling, |_| false).unwrap();
    (sampled.source != SampleSource::Branches).then_some(sampled.samples)
}

/// Names of functions and of their callers, with the number of samples.
fn callers(attachment: &Attachment, samples: &Samples) -> HashMap<(String, String), u64> {
    let found = hot_modules(attachment.process(), attachment, samples).unwrap().found;
    let images: Vec<_> = found.iter().map(|it| &it.image).collect();
    let name = |at: u64| {
        let function = images.iter().find_map(|image| Some((image, image.function_at(at)?)));
        function.map_or("outside".to_owned(), |(image, it)| image.name_at(it.start))
    };
    let mut callers = HashMap::new();
    for (caller, count) in samples.callers(&images) {
        let called_by = caller.return_address.map_or("outside".to_owned(), |at| name(at - 1));
        *callers.entry((name(caller.function), called_by)).or_default() += count;
    }
    callers
}

#[track_caller]
fn assert_proportion(attachment: &Attachment, samples: &Samples) {
    let callers = callers(attachment, samples);
    let count = |function: &str, caller: &str| {
        callers.get(&(function.to_owned(), caller.to_owned())).copied().unwrap_or(0)
    };
    let (often, rarely) = (count("mixed", "often"), count("mixed", "rarely"));
    // A busy machine leaves few samples.
    let samples_of_it = often + rarely;
    assert!(samples_of_it > 200, "{callers:?}");
    // Four standard deviations.
    let deviation = (0.75 * 0.25 / samples_of_it as f64).sqrt();
    let share = often as f64 / samples_of_it as f64;
    assert!((share - 0.75).abs() < 4.0 * deviation + 0.02, "{share}: {callers:?}");
    // Nearly all samples have a caller, and the right one.
    let right = samples_of_it
        + count("short_leaf", "mixed")
        + ["often", "rarely"].map(|it| count(it, "work")).iter().sum::<u64>();
    assert!(right * 100 > samples.total() * 95, "{right} of {}: {callers:?}", samples.total());
}

/// Returns false if branches are recorded.
#[track_caller]
fn check(flags: &[&str]) -> bool {
    let program = Program::compile("callers.c", "gcc", flags);
    let mut victim = program.start();
    let mut attachment = attach(&program, &victim);
    let Some(original) = samples(&attachment) else {
        return false;
    };
    assert_proportion(&attachment, &original);
    let options = Options { sampled_callers: true, coverage: 1.0, ..Options::default() };
    for _ in 0..2 {
        let done = optimize(&mut attachment, &original, &options, |_| ()).unwrap().0;
        assert!(done.statistics.functions_moved >= 3, "{done:?}");
        victim.assert_alive();
        // Now in copies, called by copies.
        let samples = samples(&attachment).unwrap();
        let is_copy = |at: u64| attachment.areas().any(|area| area.code_range().contains(&at));
        let in_copies: u64 =
            samples.hits().iter().filter(|it| is_copy(*it.0)).map(|(_, count)| count).sum();
        assert!(in_copies * 10 > samples.total() * 8, "{in_copies} of {}", samples.total());
        assert_proportion(&attachment, &map_to_original(&attachment, &samples));
    }
    drop(attachment);
    assert_undoable(&program, &mut victim);
    victim.end();
    true
}

#[test]
fn callers_by_pointer_have_their_shares_without_frame_pointers() {
    if !check(&["-O2", "-fomit-frame-pointer"]) {
        println!("skipped: branches are recorded instead of stacks");
    }
}

#[test]
fn callers_by_pointer_have_their_shares_with_frame_pointers() {
    if !check(&["-O2", "-fno-omit-frame-pointer"]) {
        println!("skipped: branches are recorded instead of stacks");
    }
}
