//! The page in a real browser: it fits, it follows the keyboard, it loads nothing and it throws
//! nothing. Pictures of it are left in the target directory (`tmp/report-*.png`) for people.

#![expect(clippy::unwrap_used, reason = "helpers of a test fail the test")]

#[path = "browser/devtools.rs"]
mod devtools;

use std::path::PathBuf;

use dbdyno_report::{comparison, html, sample};
use devtools::Browser;

/// The page in a file of its own, and a browser; `None` if the tester chose to go without.
fn setup(page: &str) -> Option<(Browser, PathBuf, tempfile::TempDir)> {
    if std::env::var_os("DBDYNO_SKIP_BROWSER").is_some_and(|value| value == "1") {
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("report.html");
    std::fs::write(&file, page).unwrap();
    Some((Browser::start(), file, dir))
}

fn picture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("report-{name}.png"))
}

/// The element with the focus, in words.
const FOCUS: &str = "document.activeElement.textContent";

/// Names what sticks out of the page sideways; empty if nothing does.
const TOO_WIDE: &str = "document.documentElement.scrollWidth <= innerWidth ? '' : \
    document.documentElement.scrollWidth + ': ' + [...document.querySelectorAll('body *')]\
    .filter(e => e.getBoundingClientRect().right > innerWidth && !e.closest('.scroll:not(.compare):not(.cards)'))\
    .slice(0, 5).map(e => e.outerHTML.slice(0, 120)).join(' AND ')";

#[test]
fn the_page_fits_wide_and_narrow_in_light_and_dark() {
    let Some((mut browser, file, _dir)) = setup(&html::render(&sample::report())) else { return };
    for (width, dark) in [(1280, false), (1280, true), (390, false), (390, true)] {
        browser.open(&file, width, dark);
        let scheme = if dark { "dark" } else { "light" };
        assert_eq!(browser.eval("innerWidth"), width, "the browser did not take the width");
        assert_eq!(browser.eval(TOO_WIDE), "", "at {width} px");
        let page = browser.eval("getComputedStyle(document.body).backgroundColor");
        let expected = if dark { "rgb(14, 17, 22)" } else { "rgb(245, 246, 248)" };
        assert_eq!(page, expected, "{scheme}");
        browser.screenshot(&picture(&format!("{width}-{scheme}")), true);
        browser.eval("document.getElementById('comparison').scrollIntoView()");
        browser.screenshot(&picture(&format!("{width}-{scheme}-comparison")), false);
        browser.eval("document.getElementById('groups').scrollIntoView()");
        browser.screenshot(&picture(&format!("{width}-{scheme}-groups")), false);
        browser.eval("document.getElementById('candidates').scrollIntoView()");
        browser.screenshot(&picture(&format!("{width}-{scheme}-candidates")), false);
        // The dialog fits, too.
        browser.eval("document.querySelector('#comparison a.open').click()");
        let dialog = "document.querySelector('dialog').getBoundingClientRect()";
        let right = browser.eval(&format!("{dialog}.right")).as_f64().unwrap();
        assert!(right <= f64::from(width), "at {width} px the dialog ends at {right}");
        browser.screenshot(&picture(&format!("{width}-{scheme}-detail")), false);
    }
    assert_eq!(browser.errors, [""; 0]);
    assert_eq!(browser.requests, [""; 0]);
}

#[test]
fn servers_sweeps_imports_and_audits_fit_wide_and_narrow() {
    let runs = [sample::servers(), sample::servers(), sample::servers()];
    let pages = [
        ("servers", html::render(&sample::servers())),
        ("sweep", html::render(&sample::sweep())),
        ("imported", html::render(&sample::imported())),
        ("audited", html::render(&sample::audited(&["scan_range=100"]))),
        ("side-by-side", comparison::html(&comparison::compare(&runs))),
    ];
    for (name, page) in pages {
        let Some((mut browser, file, _dir)) = setup(&page) else { return };
        for (width, dark) in [(1280, false), (390, true)] {
            browser.open(&file, width, dark);
            assert_eq!(browser.eval(TOO_WIDE), "", "{name} at {width} px");
            browser.screenshot(&picture(&format!("{name}-{width}")), true);
            for part in ["sweep", "builds", "state-snapshots", "candidates"] {
                let there = format!("document.getElementById('{part}') !== null");
                if browser.eval(&there) == true {
                    browser.eval(&format!("document.getElementById('{part}').scrollIntoView()"));
                    browser.screenshot(&picture(&format!("{name}-{width}-{part}")), false);
                }
            }
            if name == "servers" {
                browser.eval("document.querySelector('#comparison a.open').click()");
                browser.screenshot(&picture(&format!("{name}-{width}-detail")), false);
            }
        }
        assert_eq!(browser.errors, [""; 0]);
        assert_eq!(browser.requests, [""; 0]);
    }
}

#[test]
fn an_insert_benchmark_fits_wide_and_narrow() {
    let Some((mut browser, file, _dir)) = setup(&html::render(&sample::inserts())) else { return };
    for (width, dark) in [(1280, false), (1280, true), (390, true)] {
        browser.open(&file, width, dark);
        assert_eq!(browser.eval(TOO_WIDE), "", "at {width} px");
        browser.screenshot(&picture(&format!("inserts-{width}-{dark}")), true);
    }
    let outside = "[...document.querySelectorAll('#inserts svg.over')].filter(chart => \
                   [...chart.querySelectorAll('polyline, text, .stall path')].some(mark => { \
                   const a = mark.getBoundingClientRect(), b = chart.getBoundingClientRect(); \
                   return a.left < b.left - 1 || a.right > b.right + 1 || a.top < b.top - 1 \
                   || a.bottom > b.bottom + 1; })).length";
    assert_eq!(browser.eval(outside), 0);
    assert_eq!(browser.errors, [""; 0]);
    assert_eq!(browser.requests, [""; 0]);
}

#[test]
fn a_sweep_has_a_line_per_candidate_in_every_chart() {
    let Some((mut browser, file, _dir)) = setup(&html::render(&sample::sweep())) else { return };
    browser.open(&file, 1280, false);
    let counts = "[...document.querySelectorAll('#sweep svg.over')]\
                  .map(chart => chart.querySelectorAll('polyline').length).join()";
    // Throughput and CPU time of all three, and ratios of the two that have one.
    assert_eq!(browser.eval(counts), "3,3,2,3,3,2");
    let points = "document.querySelector('#sweep polyline').points.length";
    assert_eq!(browser.eval(points), 8);
    let outside = "[...document.querySelectorAll('#sweep svg.over')].filter(chart => \
                   [...chart.querySelectorAll('polyline, use, text')].some(mark => { \
                   const a = mark.getBoundingClientRect(), b = chart.getBoundingClientRect(); \
                   return a.left < b.left - 1 || a.right > b.right + 1 || a.top < b.top - 1 \
                   || a.bottom > b.bottom + 1; })).length";
    assert_eq!(browser.eval(outside), 0);
    // The figures behind the charts open with the keyboard.
    browser.eval("document.querySelector('#sweep summary').focus()");
    browser.key("Enter");
    assert_eq!(browser.eval("document.querySelector('#sweep details').open"), true);
    assert_eq!(browser.errors, [""; 0]);
}

#[test]
fn rows_are_chosen_and_left_with_the_keyboard() {
    let Some((mut browser, file, _dir)) = setup(&html::render(&sample::report())) else { return };
    browser.open(&file, 1280, false);
    let is_open = "document.querySelector('dialog').open";
    browser.eval("document.querySelector('#comparison a.open').focus()");
    let first = browser.eval(FOCUS);
    browser.key("ArrowDown");
    let second = browser.eval(FOCUS);
    assert_ne!(first, second);
    let outline = "getComputedStyle(document.activeElement).outlineStyle";
    assert_eq!(browser.eval(outline), "solid", "the focus cannot be seen");

    browser.key("Enter");
    assert_eq!(browser.eval(is_open), true);
    let title = "document.querySelector('dialog h2').firstChild.data";
    assert_eq!(browser.eval(title), second);
    let histograms = "document.querySelectorAll('dialog .hist').length";
    assert_eq!(browser.eval(histograms), 4);
    browser.key("Escape");
    browser.settle();
    assert_eq!(browser.eval(is_open), false);
    assert_eq!(browser.eval(FOCUS), second, "the focus did not come back");

    browser.key("Enter");
    browser.key("ArrowRight");
    assert_ne!(browser.eval(title), second);
    let shown = browser.eval(title);
    browser.key("Escape");
    browser.settle();
    assert_eq!(browser.eval(FOCUS), shown, "the focus is not on the microbenchmark last shown");
    assert_eq!(browser.errors, [""; 0]);
}

#[test]
fn the_toggles_change_metric_and_groups_with_the_keyboard() {
    let Some((mut browser, file, _dir)) = setup(&html::render(&sample::report())) else { return };
    browser.open(&file, 1280, false);
    let headings = "[...document.querySelectorAll('#comparison h3')]\
                    .filter(h => h.getClientRects().length).map(h => h.innerText).join('|')";
    let count = |text: &serde_json::Value| text.as_str().unwrap().split('|').count();
    let five = browser.eval(headings);
    assert_eq!(count(&five), 5);
    browser.eval("document.getElementById('t-five').focus()");
    browser.key("ArrowRight");
    let three = browser.eval(headings);
    assert_eq!(count(&three), 3);
    assert!(three.as_str().unwrap().contains("relative QPS"));
    browser.eval("document.getElementById('t-qps').focus()");
    browser.key("ArrowRight");
    assert!(browser.eval(headings).as_str().unwrap().contains("relative CPU per query"));
    assert_eq!(browser.errors, [""; 0]);
}

#[test]
fn without_scripts_links_open_the_figures() {
    let Some((mut browser, file, _dir)) = setup(&html::render(&sample::report())) else { return };
    browser.call("Emulation.setScriptExecutionDisabled", serde_json::json!({ "value": true }));
    browser.open(&file, 1280, false);
    // The protocol still evaluates; only the page's own scripts are off.
    assert_eq!(browser.eval("document.querySelector('dialog') === null"), true);
    browser.eval("document.querySelector('#comparison a.open').focus()");
    browser.key("Enter");
    let opened = "document.querySelector('details[open]') !== null";
    assert_eq!(browser.eval(opened), true);
}

#[test]
fn unusual_reports_fit_too() {
    let names = ["scan_range=100", "insert_range=100", "points-notcovered-pk.pre_range=100"];
    let mut odd = sample::failed_candidate(&names);
    odd.name = "<script>throw 1</script>".repeat(4);
    odd.candidates[1].name = "a_candidate_with_a_very_long_name".repeat(3);
    let pages =
        [sample::report_of(&[]), sample::incomplete(&names), sample::no_control(&names), odd];
    for report in pages {
        let Some((mut browser, file, _dir)) = setup(&html::render(&report)) else { return };
        for width in [1280, 390] {
            browser.open(&file, width, false);
            assert_eq!(browser.eval(TOO_WIDE), "", "{} at {width} px", report.name);
        }
        browser.screenshot(&picture(&format!("odd-{}", report.microbenchmarks.len())), true);
        assert_eq!(browser.errors, [""; 0]);
    }
}
