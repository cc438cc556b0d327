//! Audits of builds.

use super::*;

#[test]
fn audits_of_builds_show_common_and_differing_properties() {
    let text = draw(&sample::audited(&FEW), 80);
    let text = format!("{}\n\n{}", part(&text, "builds"), part(&text, "command lines"));
    insta::assert_snapshot!(text, @"
    builds, by what compilers recorded
    candidate       -O   LTO    march   hardening             text  stripped
    ────────────────────────────────────────────────────────────────────────
    rel_withdbg     O2   none   x86-64  none               997 KiB   1.2 MiB
    rel             O3*  none   x86-64  none                +16.3%    +16.0%
    rel_native      O3   none   znver3  fortify protector   +19.0%    +18.6%
    rel_native_lto  O3   slim*  znver3  fortify protector    +8.6%     +8.5%
    in all: 912 objects; assertions off; profile none
    * rel: -O2 in 5 of 912; -O0 in 2 of 912
    rel: ignored findings: optimization-level (5), unoptimized (2)
    * rel_native_lto: LTO none in 3 of 912
    rel_native_lto: warnings: lto-partial (3)

    command lines against rel_withdbg
    rel             5 files: the same flags
                    905 files: added -O3; removed -O2 -g
                    2 files: added -O0; removed -O2 -g
    rel_native      902 files: added -O3 -march=znver3 -mtune=znver3
                    -fstack-protector-strong; removed -O2 -g
                    1 file: added -O3; removed -O2
                    1 file: added -O3 -march=znver3; removed -O2
                    1 file: added -O3 -march=znver3 -mtune=znver3; removed -O2
                    1 file: 1 more kind of difference: see report.html
                    6 files only here, 1 file only in the baseline
    rel_native_lto  902 files: added -O3 -march=znver3 -mtune=znver3
                    -fstack-protector-strong -flto=auto; removed -O2 -g
                    1 file: added -O3; removed -O2
                    1 file: added -O3 -march=znver3; removed -O2
                    1 file: added -O3 -march=znver3 -mtune=znver3; removed -O2
                    1 file: 1 more kind of difference: see report.html
                    6 files only here, 1 file only in the baseline
    ");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn build_audited_from_its_linked_file_is_remarked() {
    let mut report = sample::audited(&FEW);
    let build = report.candidates[1].build.as_mut().unwrap();
    build.audit.as_mut().unwrap().from_objects = false;
    build.stripped_size = None;
    let text = part(&draw(&report, 80), "builds");
    assert!(text.contains("rel: read from the linked file only"), "{text}");
}

#[test]
fn sizes_changed_by_bolt_are_remarked() {
    let mut report = sample::audited(&FEW);
    assert!(!draw(&report, 80).contains("BOLT"));
    report.candidates[1].build.as_mut().unwrap().bolted = true;
    let text = part(&draw(&report, 80), "builds");
    let remark = "rel: BOLT keeps the code that it moved: sizes do not compare";
    assert!(text.contains(remark), "{text}");
}
