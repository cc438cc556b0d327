//! Numbers of clients.

use super::*;

#[test]
fn each_number_of_clients_has_its_own_rows_and_summaries() {
    let mut lab = Lab::new(&servers(), &[1, 8], (1, 1));
    lab.blocks(0, |_, _, _| {});
    lab.blocks(1, faster);
    let report = lab.report();
    assert!(report.is_sweep());
    assert_eq!(report.clients(), [1, 8]);
    let of_other: Vec<(u32, f64)> = report
        .groups
        .iter()
        .filter(|summary| summary.candidate == "other")
        .map(|summary| (summary.clients, summary.median.get()))
        .collect();
    assert_eq!(of_other[0], (1, 1.0));
    assert!(of_other[1].0 == 8 && (of_other[1].1 - 1.2).abs() < 1e-9);
}

#[test]
fn numbers_of_clients_are_interleaved_only_if_they_take_turns() {
    let (restarts, blocks, numbers) = (0..6, 0..4, 0..4);
    let interleaved = |in_turns: bool| {
        let mut lab = Lab::new(&servers(), &[1, 2, 4, 8], (1, 1));
        for restart in restarts.clone() {
            let mut visits: Vec<(u32, u32)> = numbers
                .clone()
                .flat_map(|number| blocks.clone().map(move |b| (number, b)))
                .collect();
            if in_turns {
                // In each round the order is another.
                visits.sort_by_key(|(number, block)| (*block, number ^ block));
            }
            for (number, block) in visits {
                lab.block(number, restart, 4 * restart + block, |_, _, _| {});
            }
        }
        let rows = lab.report().scaling;
        let ratios = rows.into_iter().flat_map(|row| [row.to_previous, row.to_smallest]).flatten();
        ratios.map(|ratio| ratio.interleaved).collect::<Vec<bool>>()
    };
    assert_eq!(interleaved(true), [true; 18]);
    assert_eq!(interleaved(false), [false; 18]);
}
