use super::*;
use crate::sample;

const FEW: [&str; 3] = ["points-notcovered-pk.pre_range=100", "scan_range=100", "insert_range=100"];

/// Three machines: on the second one MyRocks is much slower on scans, on the third one these are
/// client-bound.
fn runs() -> Vec<Report> {
    let mut all = vec![sample::servers_of(&FEW); 3];
    for (index, report) in all.iter_mut().enumerate() {
        report.name = format!("server-{index}");
        report.host = vec![("CPU".to_owned(), format!("CPU number {index}"))];
        report.settings = vec![("tables × rows".to_owned(), "8 × 10000000".to_owned())];
        for microbenchmark in &mut report.microbenchmarks {
            microbenchmark.clients = 4 * (index as u32 + 1);
        }
        sample::refresh(report);
    }
    let scan = |report: &mut Report, verdict| {
        let index = report.microbenchmarks.iter().position(|m| m.name == "scan_range=100").unwrap();
        report.microbenchmarks[index].rows[0].verdict = verdict;
    };
    scan(&mut all[1], Verdict::Better);
    all
}

fn agreement(verdicts: &[Option<Verdict>]) -> VerdictAgreement {
    let cell = |verdict: &Option<Verdict>| {
        let verdict = (*verdict)?;
        Some(Cell { ratio: Some(Ratio::ONE), estimate: None, verdict })
    };
    VerdictAgreement::of(&verdicts.iter().map(cell).collect::<Vec<_>>())
}

#[test]
fn agreement_needs_two_verdicts() {
    use Verdict::{Better, ClientBound, NoInterval, Unknown, WithinNoise, Worse};
    let of = |verdicts: &[Verdict]| {
        agreement(&verdicts.iter().map(|verdict| Some(*verdict)).collect::<Vec<_>>())
    };
    assert_eq!(of(&[Worse, Worse]), VerdictAgreement::Same(Worse));
    assert_eq!(of(&[WithinNoise, ClientBound, WithinNoise]), VerdictAgreement::Same(WithinNoise));
    assert_eq!(of(&[Worse, Unknown, NoInterval]), VerdictAgreement::Unknown);
    assert_eq!(of(&[Worse, Better]), VerdictAgreement::Split);
    let odd = |column| VerdictAgreement::OneDiffers { others: Worse, column };
    assert_eq!(of(&[Better, Worse, Worse]), odd(0));
    assert_eq!(of(&[Worse, WithinNoise, Worse, Worse]), odd(1));
    assert_eq!(of(&[Worse, Worse, Better]), odd(2));
    assert_eq!(of(&[Worse, Worse, Better, Better]), VerdictAgreement::Split);
    assert_eq!(of(&[Worse, Better, WithinNoise]), VerdictAgreement::Split);
    assert_eq!(agreement(&[Some(Worse), None, Some(Worse)]), VerdictAgreement::Same(Worse));
}

#[test]
fn columns_of_runs_fit_80_columns() {
    let text = terminal(&compare(&runs()), 80, false);
    insta::assert_snapshot!(text, @"
    3 runs side by side, relative QPS, above 1 is better
    A  server-0: CPU number 0; 4 clients, 8 × 10000000; baseline innodb, MariaDB
       10.11.14 (innodb); noise ±0.22%
    B  server-1: CPU number 1; 8 clients, 8 × 10000000; baseline innodb, MariaDB
       10.11.14 (innodb); noise ±0.22%
    C  server-2: CPU number 2; 12 clients, 8 × 10000000; baseline innodb, MariaDB
       10.11.14 (innodb); noise ±0.22%
    + better than the baseline, - worse, ~ within noise, c client-bound, · no
    interval, ? too few blocks, ! failed; last: = all agree, the label of the one
    that differs, or / split

    myrocks
    group               A       B       C
    point-1  median 0.734   0.734   0.734
             min    0.734   0.734   0.734
             max    0.734   0.734   0.734
    range-1  median 0.579   0.579   0.579
             min    0.579   0.579   0.579
             max    0.579   0.579   0.579
    writes   median 0.546   0.546   0.546
             min    0.546   0.546   0.546
             max    0.546   0.546   0.546

    myrocks: best and worst microbenchmark
    point-1   best   points-notcovered-pk.pre_range=100 (A 0.734, B 0.734, C 0.734)
              worst  points-notcovered-pk.pre_range=100 (A 0.734, B 0.734, C 0.734)
    range-1   best   scan_range=100 (A 0.579, B 0.579, C 0.579)
              worst  scan_range=100 (A 0.579, B 0.579, C 0.579)
    writes    best   insert_range=100 (A 0.546, B 0.546, C 0.546)
              worst  insert_range=100 (A 0.546, B 0.546, C 0.546)

    myrocks: point-1
    microbenchmark                         A       B       C
    points-notcovered-pk.pre_range=100 0.734 - 0.734 - 0.734 - =

    myrocks: range-1
    microbenchmark                         A       B       C
    scan_range=100                     0.579 - 0.579 + 0.579 - B

    myrocks: writes
    microbenchmark                         A       B       C
    insert_range=100                   0.546 - 0.546 - 0.546 - =

    myrocks: the runs agree on 2 of 3 microbenchmarks (0 faster, 2 slower, 0 within
    noise); on 1 one run differs, on 0 they are split.
    ");
}

#[test]
fn sweep_has_a_column_per_number_of_clients() {
    let comparison = compare(&[sample::sweep(), sample::servers_of(&["read-only_range=100"])]);
    let columns: Vec<(&str, u32)> =
        comparison.columns.iter().map(|column| (column.label.as_str(), column.clients)).collect();
    assert_eq!(columns[..2], [("A", 1), ("B", 2)]);
    assert_eq!(columns[7..], [("H", 128), ("I", 1)]);
    let row = comparison.rows.iter().find(|row| row.microbenchmark == "point-query_range=100");
    assert!(row.unwrap().cells[8].is_none());
    for width in [80, 120] {
        for line in terminal(&comparison, width, false).lines() {
            assert!(line.chars().count() <= width, "{width}: {line}");
        }
    }
}

#[test]
fn candidates_and_microbenchmarks_are_matched_by_name() {
    let mut all = vec![sample::report_of(&FEW), sample::report_of(&["scan_range=100"])];
    all[1].candidates[1].name = "new".to_owned();
    all[1].microbenchmarks[0].rows[0].candidate = "new".to_owned();
    sample::refresh(&mut all[1]);
    let comparison = compare(&all);
    let of = |candidate: &str| -> Vec<(&str, Vec<bool>)> {
        let rows = comparison.rows.iter().filter(|row| row.candidate == candidate);
        rows.map(|row| {
            (row.microbenchmark.as_str(), row.cells.iter().map(Option::is_some).collect())
        })
        .collect()
    };
    assert_eq!(of("new"), [("scan_range=100", vec![false, true])]);
    assert_eq!(of("rel").len(), 3);
    assert_eq!(of("rel_native")[1], ("scan_range=100", vec![true, true]));
    assert!(of("control").is_empty());
}

#[test]
fn different_baselines_are_noted() {
    let comparison = compare(&[sample::servers_of(&FEW), sample::incomplete(&FEW)]);
    let notes = comparison.notes.join("\n");
    assert!(notes.contains("different baselines: innodb; rel_withdbg"), "{notes}");
    assert!(notes.contains("MariaDB 10.11.14 (innodb); SQLite 3.50.0"), "{notes}");
    assert!(notes.contains("not complete: sqlite-variants"), "{notes}");
    assert!(compare(&runs()).notes.is_empty());
}

#[test]
fn csv_has_a_line_per_run() {
    let text = csv(&compare(&runs())).unwrap();
    let mut reader = ::csv::Reader::from_reader(text.as_bytes());
    assert_eq!(reader.headers().unwrap(), COMPARISON_HEADER.as_slice());
    let records: Vec<::csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    assert_eq!(records.len(), 3 * 3);
    let scan = records.iter().find(|record| &record[7] == "scan_range=100" && &record[0] == "B");
    let scan = scan.unwrap();
    assert_eq!((&scan[2], &scan[3], &scan[11]), ("CPU number 1", "8", "faster"));
    assert_eq!(&scan[12], "B differs, others slower");
}

#[test]
fn page_is_complete_and_escapes_text() {
    let mut all = runs();
    all[0].name = "<script>alert(1)</script>".to_owned();
    all[0].host[0].1 = "<script>alert(1)</script>".to_owned();
    let page = html(&compare(&all));
    assert!(!page.contains("<script>") && page.contains("&lt;script&gt;alert"));
    for text in ["B differs, others slower", "8 × 10000000", "CPU number 2", "worst insert"] {
        assert!(page.replace("<wbr>", "").contains(text), "{text}");
    }
    assert!(!page.contains("http:") && !page.contains("https:"));
}

#[test]
fn comparison_without_results_says_so() {
    assert!(terminal(&compare(&[]), 80, false).contains("Nothing to compare."));
}
