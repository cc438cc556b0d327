//! Option files of servers: `options` of a candidate.

use std::cell::RefCell;
use std::fmt::Write as _;

use dbdyno_fuzz::Fuzz;
use dbdyno_spec::experiment::{PrivateServer, System};
use dbdyno_spec::parse_with_files;

const MY_CNF: &str = r#"# The server's own options
[client]
port = 3306
[mysqld_safe]
nice = 0

[mysqld]
user=mysql
socket   = /run/mysqld/mysqld.sock
basedir = /usr
skip-name-resolve
key-buffer-size = 16M # a comment
innodb_buffer_pool_size="80G"
log-bin = /var/log/mysql/mysql-bin.log
server_id = 1
sql_mode = 'ANSI_QUOTES' ; no comment
loose-innodb_numa_interleave=1
innodb_data_home_dir = /srv/mysql
tmpdir=/tmp
plugin-load = a.so
plugin-load-add = b.so
ssl_cert = /etc/mysql/cert.pem
default-storage-engine = InnoDB
wsrep_cluster_address = gcomm://10.0.0.1
slow-query-log
server_audit_file_path = /var/log/audit.log
performance_schema = ON
[mariadb-10.6]
sort_buffer_size = 6M
[mariadb-10.11]
sort_buffer_size = 11M
!include extra.cnf
!include missing.cnf
!includedir conf.d
"#;

const POSTGRESQL_CONF: &str = "# Memory
shared_buffers = 8GB\t\t\t# min 128kB
max_connections 200
data_directory = '/srv/pg'
log_line_prefix = '%m ''%p'''
Random_Page_Cost = 1.1
archive_mode = on
archive_command = 'cp %p /archive/%f'
ssl = on
lc_messages = 'en_US.UTF-8'
random_page_cost = 1.3
include_if_exists 'missing.conf'
include 'more.conf'
include_dir 'conf.d'
";

fn file(name: &str) -> Result<String, String> {
    Ok(match name {
        "etc/my.cnf" => MY_CNF,
        "etc/extra.cnf" => "[server]\nkey_buffer_size=17M\n",
        "etc/conf.d/" => "b.cnf\na.cnf\nc.txt\n1.conf\n.hidden.conf\n",
        "etc/conf.d/a.cnf" => "[mysqld]\nread_buffer_size=1M\n",
        "etc/conf.d/b.cnf" => "[mysqld]\nread_buffer_size=2M\n",
        "etc/conf.d/1.conf" => "work_mem = 64MB\n",
        "etc/more.conf" => "work_mem = 32MB\n",
        "etc/postgresql.conf" => POSTGRESQL_CONF,
        "loop.cnf" => "!include loop.cnf\n",
        "loop.conf" => "include 'loop.conf'\n",
        _ => return Err(format!("reading {name}: no such file")),
    }
    .to_owned())
}

fn read_from(
    files: &dyn Fn(&str) -> Result<String, String>,
    system: &str,
    lines: &str,
) -> Result<PrivateServer, String> {
    let text = format!(
        "name = 'test'\nbaseline = 'a'\n[[candidate]]\nname = 'a'\nsystem = '{system}'\n{lines}"
    );
    let experiment = parse_with_files("test.toml", &text, files).map_err(|it| it.to_string())?;
    let json = serde_json::to_string(&experiment).unwrap();
    assert_eq!(experiment, serde_json::from_str(&json).unwrap());
    match experiment.candidates[0].system.clone() {
        System::Private(server) => Ok(server),
        other => panic!("{other:?}"),
    }
}

fn read(system: &str, lines: &str) -> Result<PrivateServer, String> {
    read_from(&file, system, lines)
}

/// The settings, and below them what was left out.
fn shown(server: &PrivateServer) -> String {
    let mut text = String::new();
    for (name, value) in &server.configuration {
        writeln!(text, "{name} = {value}").unwrap();
    }
    for options in &server.options {
        let files: Vec<&str> = options.files.iter().map(|(file, _)| file.as_str()).collect();
        writeln!(text, "-- {} of {}", options.settings.len(), files.join(", ")).unwrap();
        writeln!(text, "{}", options.left_out_text().unwrap_or_default().replace("; ", "\n"))
            .unwrap();
    }
    text
}

#[test]
fn my_cnf_is_read_as_the_server_reads_it() {
    let lines = "options = 'etc/my.cnf'\nconfiguration = { read-buffer-size = '4M', x = 1 }";
    insta::assert_snapshot!(shown(&read("mariadb", lines).unwrap()), @"
    skip_name_resolve = ON
    key_buffer_size = 17M
    innodb_buffer_pool_size = 80G
    log_bin = mysql-bin.log
    server_id = 1
    sql_mode = 'ANSI_QUOTES' ; no comment
    loose_innodb_numa_interleave = 1
    plugin_load_add = a.so;b.so
    slow_query_log = ON
    performance_schema = ON
    10.6/sort_buffer_size = 6M
    10.11/sort_buffer_size = 11M
    read_buffer_size = 4M
    x = 1
    -- 13 of etc/my.cnf, etc/extra.cnf, etc/conf.d/a.cnf, etc/conf.d/b.cnf
    user (line 8), socket (line 9), basedir (line 10), the directory of log_bin (line 14), innodb_data_home_dir (line 18), tmpdir (line 19): dbdyno sets it
    ssl_cert (line 22): dbdyno makes the certificates that it needs
    default_storage_engine (line 23): the candidate's `engine` sets it
    wsrep_cluster_address (line 24): a private server is alone: it has no cluster, replica or archive
    server_audit_file_path (line 26): its path may be another server's
    !include etc/missing.cnf (line 33): there is no such file
    ");
    let mysql = read("mysql", lines).unwrap();
    assert!(!mysql.configuration.iter().any(|(name, _)| name.contains('/')), "{mysql:?}");
}

#[test]
fn postgresql_conf_is_read_as_the_server_reads_it() {
    insta::assert_snapshot!(shown(&read("postgresql", "options = 'etc/postgresql.conf'").unwrap()), @"
    shared_buffers = 8GB
    max_connections = 200
    log_line_prefix = %m '%p'
    random_page_cost = 1.3
    work_mem = 64MB
    -- 5 of etc/postgresql.conf, etc/more.conf, etc/conf.d/1.conf
    data_directory (line 4): dbdyno sets it
    archive_mode (line 7), archive_command (line 8): a private server is alone: it has no cluster, replica or archive
    ssl (line 9): dbdyno makes the certificates that it needs
    lc_messages (line 10): dbdyno's data has the locale C
    ");
}

#[test]
fn settings_of_a_candidate_replace_those_of_the_section() {
    let lines = "options = 'etc/conf.d/a.cnf'\n[mariadb]\noptions = 'etc/extra.cnf'\n\
                 configuration = { read_buffer_size = '3M' }";
    let server = read("mariadb", lines).unwrap();
    let settings: Vec<String> =
        server.configuration.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(settings, ["key_buffer_size=17M", "read_buffer_size=1M"]);
    assert_eq!(server.options.len(), 2);
    let places = [("read_buffer_size".to_owned(), "etc/conf.d/a.cnf:2".to_owned())];
    assert_eq!(server.options[1].settings, places);
}

#[test]
fn later_setting_for_all_versions_replaces_those_for_one() {
    let text = "[mariadb-10.11]\nx=1\ny=1\n[mysqld]\nx=2\n";
    let files = |_: &str| Ok(text.to_owned());
    let lines = "options = 'my.cnf'\nconfiguration = { y = 3 }";
    let server = read_from(&files, "mariadb", lines).unwrap();
    let setting = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(server.configuration, [setting("x", "2"), setting("y", "3")]);
}

#[test]
fn faults_have_the_file_and_the_line() {
    let of = |system: &str, text: &str| {
        let files = |_: &str| Ok(text.to_owned());
        let error = read_from(&files, system, "options = 'dir/my.cnf'").unwrap_err();
        error.lines().next().unwrap().to_owned()
    };
    for (system, text, expected) in [
        ("mariadb", "a=1\n", "dir/my.cnf:1: there is a setting before any group"),
        ("mariadb", "[mysqld\n", "dir/my.cnf:1: a group has no `]`"),
        (
            "mysql",
            "[mysqld]\n\nkey buffer = 1\n",
            "dir/my.cnf:3: `key buffer` cannot be the name of a setting",
        ),
        ("mysql", "[mysqld]\na=x\\ny\n", "dir/my.cnf:2: the value of `a` has control characters"),
        ("mariadb", "!inclde x\n", "dir/my.cnf:1: `!inclde x` is not a directive"),
        (
            "mysql",
            "[client]\na=1\n[mariadb]\n",
            "dir/my.cnf has no setting of MySQL: its groups are [client], [mariadb]",
        ),
        (
            "mysql",
            "[mysqld]\nbinlog-do-db=a\nbinlog_do_db=b\n",
            "dir/my.cnf:3: `binlog_do_db` has several values",
        ),
        ("postgresql", "a = 1\nb = 'x\n", "dir/my.cnf:2: syntax error near `'x`"),
        ("postgresql", "[mysqld]\n", "dir/my.cnf:1: syntax error near `[mysqld]`"),
    ] {
        assert_eq!(of(system, text), format!("error: `options`: {expected}"));
    }
    let problem =
        |system: &str, name: &str| read(system, &format!("options = '{name}'")).unwrap_err();
    assert!(
        problem("mariadb", "none.cnf")
            .starts_with("error: `options`: reading none.cnf: no such file")
    );
    assert!(problem("mariadb", "loop.cnf").contains("loop.cnf:1: loop.cnf is too much to read"));
    assert!(
        problem("postgresql", "loop.conf").contains("loop.conf:1: loop.conf is too much to read")
    );
    let url = read("mariadb", "url = 'mysql://me@h/'\noptions = 'etc/my.cnf'").unwrap_err();
    assert!(url.contains("`options` applies to servers that dbdyno starts only"), "{url}");
}

#[test]
fn damaged_option_files_are_read_or_refused() {
    let samples = vec![MY_CNF.as_bytes().to_vec(), POSTGRESQL_CONF.as_bytes().to_vec()];
    let words = [
        "[mysqld]\n",
        "!include ",
        "!includedir ",
        "'",
        "\"",
        "\\",
        "\\777",
        "=",
        "#",
        "include_dir ''",
    ];
    let parse = |bytes: &[u8]| {
        let text = RefCell::new(Some(String::from_utf8_lossy(bytes).into_owned()));
        // Every name is that of the damaged file, once.
        let files = |name: &str| match text.borrow_mut().take() {
            Some(text) => Ok(text),
            None => file(name),
        };
        let system = ["mariadb", "mysql", "postgresql"][bytes.len() % 3];
        if let Ok(server) = read_from(&files, system, "options = 'etc/x'") {
            for (name, value) in &server.configuration {
                assert!(!name.is_empty() && !value.contains(char::is_control), "{name} {value}");
            }
        }
    };
    Fuzz::new(samples).words(&words).cases(128).run(parse);
}
