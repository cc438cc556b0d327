//! The page in a real browser: it fits, it follows the keyboard, it loads nothing and throws
//! nothing.
//!
//! All checks share one browser, as starting one takes longer than most checks. Set
//! `DBDYNO_SCREENSHOTS=DIR` to get pictures of the pages.

#![expect(clippy::unwrap_used, reason = "helpers of a test fail the test")]

#[path = "browser/devtools.rs"]
mod devtools;

use std::panic::{AssertUnwindSafe, catch_unwind};

use dbdyno_report::model::Report;
use dbdyno_report::{comparison, history, html, sample};
use devtools::Browser;

type Check = fn(&mut Browser);

const CHECKS: [(&str, Check); 12] = [
    ("report_fits_wide_and_narrow_in_light_and_dark", report_fits),
    ("other_kinds_of_reports_fit_wide_and_narrow", other_kinds_of_reports_fit),
    ("insert_benchmark_fits_wide_and_narrow", insert_benchmark_fits),
    ("names_of_a_series_fit", names_of_a_series_fit),
    ("history_fits_wide_and_narrow", history_fits),
    ("sweep_has_a_line_per_candidate_in_every_chart", sweep_charts_are_complete),
    ("details_open_and_close_with_the_keyboard", details_open_with_the_keyboard),
    ("toggles_change_metric_and_groups_with_the_keyboard", toggles_work_with_the_keyboard),
    ("links_open_the_details_without_scripts", links_work_without_scripts),
    ("unusual_reports_fit_wide_and_narrow", unusual_reports_fit),
    ("flame_graphs_fit_enlarge_and_search", flame_graphs_work),
    ("injected_markup_neither_runs_nor_is_styled", injected_markup_is_inert),
];

#[test]
fn page_works_in_a_browser() {
    if std::env::var_os("DBDYNO_SKIP_BROWSER").is_some_and(|value| value == "1") {
        return dbdyno_fuzz::skip("DBDYNO_SKIP_BROWSER is set");
    }
    let mut browser = Browser::start();
    let mut failed = Vec::new();
    for (name, check) in CHECKS {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            check(&mut browser);
            assert_eq!(browser.errors, [""; 0], "errors of the page");
            assert_eq!(browser.requests, [""; 0], "the page loads something");
        }));
        if outcome.is_err() {
            failed.push(name);
            browser.errors.clear();
            browser.requests.clear();
        }
    }
    assert!(failed.is_empty(), "{} of {} checks failed: {failed:?}", failed.len(), CHECKS.len());
}

/// The policy holds even if text of a run gets into the page unescaped.
fn injected_markup_is_inert(browser: &mut Browser) {
    let markup = "<script>window.ran = 1</script><img src=x onerror='window.ran = 2'>\
                  <p id=injected style='opacity: 0'>x</p>\
                  <style>#injected { opacity: 0 }</style></main>";
    let page = html::render(&sample::report()).replace("</main>", markup);
    browser.open(&page, 1280, false);
    browser.wait_for_handlers();
    assert_eq!(browser.eval("typeof window.ran"), "undefined");
    let opacity = "getComputedStyle(document.getElementById('injected')).opacity";
    assert_eq!(browser.eval(opacity), "1");
    assert_eq!(browser.eval("document.documentElement.className"), "scripted");
    assert!(!browser.errors.is_empty());
    // The browser reports what it blocked.
    browser.errors.clear();
}

/// The element with the focus, in words.
const FOCUS: &str = "document.activeElement.textContent";

/// Whether the dialog with the details is open.
const DIALOG_IS_OPEN: &str = "document.querySelector('dialog').open";

/// Elements wider than the page; empty if there is none.
const TOO_WIDE: &str = "document.documentElement.scrollWidth <= innerWidth ? '' : \
    document.documentElement.scrollWidth + ': ' + [...document.querySelectorAll('body *')]\
    .filter(e => e.getBoundingClientRect().right > innerWidth \
        && !e.closest('.scroll:not(.compare):not(.cards)'))\
    .slice(0, 5).map(e => e.outerHTML.slice(0, 120)).join(' AND ')";

/// The number of charts within `section` with a part that sticks out of the drawing.
fn charts_with_parts_outside(section: &str, parts: &str) -> String {
    format!(
        "[...document.querySelectorAll('{section} svg.over')].filter(chart => \
         [...chart.querySelectorAll('{parts}')].some(part => {{ \
         const a = part.getBoundingClientRect(), b = chart.getBoundingClientRect(); \
         return a.left < b.left - 1 || a.right > b.right + 1 || a.top < b.top - 1 \
         || a.bottom > b.bottom + 1; }})).length"
    )
}

/// Takes pictures of the page and of these parts of it.
fn take_pictures(browser: &mut Browser, name: &str, parts: &[&str]) {
    browser.screenshot(name, true);
    for part in parts {
        let exists = format!("document.getElementById('{part}') !== null");
        if browser.takes_screenshots() && browser.eval(&exists) == true {
            browser.eval(&format!("document.getElementById('{part}').scrollIntoView()"));
            browser.screenshot(&format!("{name}-{part}"), false);
        }
    }
}

fn report_fits(browser: &mut Browser) {
    let page = html::render(&sample::report());
    for (width, dark) in [(1280, false), (1280, true), (390, false), (390, true)] {
        browser.open(&page, width, dark);
        let scheme = if dark { "dark" } else { "light" };
        assert_eq!(browser.eval("innerWidth"), width, "the browser did not take the width");
        assert_eq!(browser.eval(TOO_WIDE), "", "at {width} px");
        let background = browser.eval("getComputedStyle(document.body).backgroundColor");
        let expected = if dark { "rgb(14, 17, 22)" } else { "rgb(245, 246, 248)" };
        assert_eq!(background, expected, "{scheme}");
        let name = format!("report-{width}-{scheme}");
        take_pictures(browser, &name, &["comparison", "groups", "candidates"]);
        browser.eval("document.querySelector('#comparison a.open').click()");
        let dialog = "document.querySelector('dialog').getBoundingClientRect()";
        let right = browser.eval(&format!("{dialog}.right")).as_f64().unwrap();
        assert!(right <= f64::from(width), "at {width} px the dialog ends at {right}");
        browser.screenshot(&format!("{name}-details"), false);
    }
}

fn other_kinds_of_reports_fit(browser: &mut Browser) {
    let run = |directory: &str, report| Report { directory: directory.into(), ..report };
    let runs = ["results/a", "results/b", "results/a-longer-directory-of-the-third-run"]
        .map(|directory| run(directory, sample::servers()));
    let days = ["results/yesterday", "today"].map(|directory| {
        run(directory, sample::single(&["points-notcovered-pk.pre_range=100", "scan_range=100"]))
    });
    let pages = [
        ("servers", html::render(&sample::servers())),
        ("sweep", html::render(&sample::sweep())),
        ("imported", html::render(&sample::imported())),
        ("audited", html::render(&sample::audited(&["scan_range=100"]))),
        ("comparison", comparison::html(&comparison::compare(&runs))),
        ("days", comparison::html(&comparison::compare(&days))),
    ];
    for (name, page) in pages {
        for (width, dark) in [(1280, false), (390, true)] {
            browser.open(&page, width, dark);
            assert_eq!(browser.eval(TOO_WIDE), "", "{name} at {width} px");
            let parts =
                ["differences", "absolute", "sweep", "builds", "state-snapshots", "candidates"];
            take_pictures(browser, &format!("{name}-{width}"), &parts);
            if name == "servers" {
                browser.eval("document.querySelector('#comparison a.open').click()");
                assert_eq!(browser.eval(DIALOG_IS_OPEN), true);
                browser.screenshot(&format!("{name}-{width}-details"), false);
            }
        }
    }
}

fn insert_benchmark_fits(browser: &mut Browser) {
    let page = html::render(&sample::inserts());
    for (width, dark) in [(1280, false), (1280, true), (390, true)] {
        browser.open(&page, width, dark);
        assert_eq!(browser.eval(TOO_WIDE), "", "at {width} px");
        browser.screenshot(&format!("inserts-{width}-{dark}"), true);
    }
    let outside = charts_with_parts_outside("#inserts", "polyline, text, .stall path");
    assert_eq!(browser.eval(&outside), 0);
}

fn names_of_a_series_fit(browser: &mut Browser) {
    let mut report = sample::series(5);
    report.series[0].candidates = ["innodb", "postgresql", "rocksdb", "tokudb", "wiredtiger"]
        .map(|name| format!("{name}-with-the-settings-of-{name}"))
        .into();
    browser.open(&html::render(&report), 1400, false);
    take_pictures(browser, "series", &["series"]);
    let outside = charts_with_parts_outside("#series", "polyline, use, text");
    assert_eq!(browser.eval(&outside), 0);
}

fn history_fits(browser: &mut Browser) {
    let names = ["scan_range=100", "range-covered-pk_range=100", "insert_range=100"];
    let page = history::html(&history::history(&sample::history(&names, 30)).unwrap());
    for (width, dark) in [(1400, false), (400, false), (400, true)] {
        browser.open(&page, width, dark);
        assert_eq!(browser.eval(TOO_WIDE), "", "at {width} px");
        take_pictures(browser, &format!("history-{width}-{dark}"), &["groups", "runs"]);
        let outside = charts_with_parts_outside("#groups", "line, use, text");
        assert_eq!(browser.eval(&outside), 0, "at {width} px");
    }
}

fn sweep_charts_are_complete(browser: &mut Browser) {
    browser.open(&html::render(&sample::sweep()), 1280, false);
    let counts = "[...document.querySelectorAll('#sweep svg.over')]\
                  .map(chart => chart.querySelectorAll('polyline').length).join()";
    // Throughput and CPU time of all three, and ratios of the two that have one.
    assert_eq!(browser.eval(counts), "3,3,2,3,3,2");
    let points = "document.querySelector('#sweep polyline').points.length";
    assert_eq!(browser.eval(points), 8);
    let outside = charts_with_parts_outside("#sweep", "polyline, use, text");
    assert_eq!(browser.eval(&outside), 0);
    // The values of the charts open with the keyboard.
    browser.eval("document.querySelector('#sweep summary').focus()");
    browser.key("Enter");
    assert_eq!(browser.eval("document.querySelector('#sweep details').open"), true);
}

fn details_open_with_the_keyboard(browser: &mut Browser) {
    browser.open(&html::render(&sample::report()), 1280, false);
    browser.eval("document.querySelector('#comparison a.open').focus()");
    let first = browser.eval(FOCUS);
    browser.key("ArrowDown");
    let second = browser.eval(FOCUS);
    assert_ne!(first, second);
    let outline = "getComputedStyle(document.activeElement).outlineStyle";
    assert_eq!(browser.eval(outline), "solid", "the focus is invisible");

    browser.key("Enter");
    assert_eq!(browser.eval(DIALOG_IS_OPEN), true);
    let title = "document.querySelector('dialog h2').firstChild.data";
    assert_eq!(browser.eval(title), second);
    let histograms = "document.querySelectorAll('dialog .hist').length";
    assert_eq!(browser.eval(histograms), 4);
    browser.key("Escape");
    browser.wait_for_handlers();
    assert_eq!(browser.eval(DIALOG_IS_OPEN), false);
    assert_eq!(browser.eval(FOCUS), second, "the focus did not return");

    browser.key("Enter");
    browser.key("ArrowRight");
    assert_ne!(browser.eval(title), second);
    let shown = browser.eval(title);
    browser.key("Escape");
    browser.wait_for_handlers();
    assert_eq!(browser.eval(FOCUS), shown, "the focus is not on the microbenchmark last shown");
}

fn toggles_work_with_the_keyboard(browser: &mut Browser) {
    browser.open(&html::render(&sample::report()), 1280, false);
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
}

fn links_work_without_scripts(browser: &mut Browser) {
    browser.enable_scripts(false);
    browser.open(&html::render(&sample::report()), 1280, false);
    // The protocol still evaluates; only the page's own scripts are off.
    let has_dialog = browser.eval("document.querySelector('dialog') !== null");
    browser.eval("document.querySelector('#comparison a.open').focus()");
    browser.key("Enter");
    let is_open = browser.eval("document.querySelector('details[open]') !== null");
    browser.enable_scripts(true);
    assert_eq!((has_dialog, is_open), (false.into(), true.into()));
}

fn flame_graphs_work(browser: &mut Browser) {
    let page = html::render(&sample::profiled(&["scan_range=100"]));
    let count = |part: &str| format!("document.querySelectorAll('{part}').length");
    for width in [1400, 400] {
        browser.open(&page, width, width == 400);
        browser
            .eval("document.querySelectorAll('#figures details').forEach(one => one.open = true)");
        assert_eq!(browser.eval(TOO_WIDE), "", "at {width} px");
        take_pictures(browser, &format!("profiled-{width}"), &["why", "figures"]);
        let one = "[...document.querySelectorAll('.flame .frame')]\
                   .find(box => box.textContent.startsWith('rocksdb::DBIter'))";
        browser.eval(&format!("{one}.dispatchEvent(new MouseEvent('click', {{ bubbles: true }}))"));
        assert_eq!(browser.eval(&format!("{one}.getAttribute('width')")), "100%");
        assert_ne!(browser.eval(&count(".flame .out")), 0, "nothing is hidden");
        browser.eval("document.querySelector('.flame button').click()");
        assert_eq!(browser.eval(&count(".flame .out")), 0);
        browser.eval(
            "(input => { input.value = 'dbiter'; \
             input.dispatchEvent(new Event('input', { bubbles: true })); }) \
             (document.querySelector('.flame input'))",
        );
        assert_eq!(browser.eval(&count(".flame .found")), 1);
        let found = browser.eval("document.querySelector('.flame output').textContent");
        assert!(found.as_str().unwrap().ends_with("% of the time"), "{found}");
    }
}

fn unusual_reports_fit(browser: &mut Browser) {
    let names = ["scan_range=100", "insert_range=100", "points-notcovered-pk.pre_range=100"];
    let mut odd = sample::failed_candidate(&names);
    odd.name = "<script>throw 1</script>".repeat(4);
    odd.candidates[1].name = "a_candidate_with_a_very_long_name".repeat(3);
    let reports = [
        ("empty", sample::report_of(&[])),
        ("incomplete", sample::incomplete(&names)),
        ("no-control", sample::no_control(&names)),
        ("odd", odd),
    ];
    for (name, report) in reports {
        let page = html::render(&report);
        for width in [1280, 390] {
            browser.open(&page, width, false);
            assert_eq!(browser.eval(TOO_WIDE), "", "{name} at {width} px");
            browser.screenshot(&format!("{name}-{width}"), true);
        }
    }
}
