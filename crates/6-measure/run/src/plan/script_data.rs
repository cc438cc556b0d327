//! Which scripts share data: those whose `prepare` makes the same. Others have schemas of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dbdyno_scripts::{
    DataKey, Driver, Options, Seed, Setup, Source, UniquePosition, check_in_run, data_key,
};
use dbdyno_spec::experiment::{Experiment, System};
use dbdyno_types::server::{Protocol, ServerSystem};
use dbdyno_workloads::definition::Script;

use crate::error::RunError;
use crate::session::progress::{Progress, RunEvent};

/// Data of a run.
struct Data<'s> {
    /// The schema that the experiment names.
    schema: Option<String>,
    key: DataKey,
    /// The script that makes it.
    by: &'s str,
}

/// Numbers the data of all scripts. The numbers are stored with the run: finding them takes as long as making the rows.
pub(crate) fn assign(
    experiment: &mut Experiment,
    cancel: &AtomicBool,
    progress: Progress<'_>,
) -> Result<(), RunError> {
    let scripts: Vec<Script> = experiment.workload.scripts().cloned().collect();
    for script in &scripts {
        for options in script.all_options() {
            check_in_run(&script.source, &options).map_err(RunError::Refused)?;
        }
    }
    let all_equal = scripts.iter().all(|script| *script == scripts[0]);
    if !all_equal {
        progress(RunEvent::Stage("comparing the data of the scripts".to_owned()));
    }
    let setups = setups(experiment);
    let mut known: Vec<(&Source, &Options, DataKey)> = Vec::new();
    let mut all: Vec<Data<'_>> = Vec::new();
    let mut numbers = Vec::new();
    for Script { source, options, schema, .. } in &scripts {
        let same = known.iter().find(|(one, set, _)| *one == source && *set == options);
        let key = match same {
            Some((.., key)) => *key,
            None if all_equal => DataKey::Of(0),
            None => {
                let setup = |setup: &Setup| Setup { options: options.clone(), ..setup.clone() };
                let setups: Vec<Setup> = setups.iter().map(setup).collect();
                data_key(source, &setups, &|| cancel.load(Ordering::Relaxed))
            }
        };
        // The key of what was not recorded to its end is another one.
        if cancel.load(Ordering::Relaxed) {
            return Err(RunError::Interrupted);
        }
        known.push((source, options, key));
        numbers.push(number(&mut all, Data { schema: schema.clone(), key, by: &source.name })?);
    }
    // The first script of each number that sends statements.
    let makes = |at: &usize| known[*at].2 != DataKey::Nothing;
    let makers: Vec<Option<usize>> = (0..all.len() as u32)
        .map(|number| {
            let of_number = || (0..numbers.len()).filter(|at| numbers[*at] == number);
            of_number().find(makes).or_else(|| of_number().next())
        })
        .collect();
    let microbenchmarks = &mut experiment.workload.microbenchmarks;
    let own = microbenchmarks.iter_mut().filter_map(|one| one.script.as_mut());
    for ((at, script), number) in own.enumerate().zip(&numbers) {
        script.data = *number;
        script.shares_data = makers[*number as usize] != Some(at);
        script.deletes = script.only_deletes();
    }
    Ok(())
}

/// The number of a script's data, which is added unless it is known.
fn number<'s>(all: &mut Vec<Data<'s>>, own: Data<'s>) -> Result<u32, RunError> {
    let fits = |data: &Data<'_>| match own.key {
        // Any tables in its schema are its tables; without a schema, the first ones.
        DataKey::Nothing => own.schema.is_none() || data.schema == own.schema,
        DataKey::Of(_) => {
            data.schema == own.schema && [own.key, DataKey::Nothing].contains(&data.key)
        }
    };
    if let Some(at) = all.iter().position(fits) {
        if let (Data { key: key @ DataKey::Nothing, .. }, DataKey::Of(_)) = (&mut all[at], own.key)
        {
            *key = own.key;
        }
        return Ok(at as u32);
    }
    if let (Some(other), Some(schema)) =
        (all.iter().find(|data| data.schema == own.schema), &own.schema)
    {
        return Err(RunError::Refused(format!(
            "{} and {} make different data in the schema `{schema}`: set another `schema` for one of them",
            other.by, own.by
        )));
    }
    all.push(own);
    Ok(all.len() as u32 - 1)
}

/// How `prepare` is run by the systems of the experiment, without options.
fn setups(experiment: &Experiment) -> Vec<Setup> {
    let system = |system: &System| match system {
        System::Private(server) => Some(server.system),
        System::Existing(server) => Some(server.system),
        System::Sqlite { .. } => None,
    };
    let systems = experiment.candidates.iter().filter_map(|one| system(&one.system));
    let protocols: Vec<Protocol> =
        systems.map(|system: ServerSystem| system.facts().protocol).collect();
    let drivers = [(Protocol::MySql, Driver::MySql), (Protocol::PostgreSql, Driver::PostgreSql)];
    let used = drivers.into_iter().filter(|(protocol, _)| protocols.contains(protocol));
    used.map(|(_, driver)| Setup {
        driver,
        storage_engine: None,
        access: Arc::default(),
        options: Options::new(),
        client: 0,
        clients: experiment.workload.most_clients(),
        seed: Seed::of(&[experiment.seed]),
        unique: UniquePosition::default(),
        time_limit: Setup::TIME_LIMIT,
        restricted: false,
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_data_has_one_number_and_other_data_another() {
        let mut all = Vec::new();
        let mut add = |schema: Option<&str>, key| {
            let schema = schema.map(str::to_owned);
            number(&mut all, Data { schema, key, by: "a.lua" })
        };
        let numbers: Vec<u32> = [
            (None, DataKey::Nothing),
            (None, DataKey::Of(1)),
            (None, DataKey::Of(2)),
            (None, DataKey::Of(1)),
            (Some("own"), DataKey::Of(1)),
            (Some("own"), DataKey::Nothing),
            (Some("empty"), DataKey::Nothing),
            (None, DataKey::Nothing),
        ]
        .map(|(schema, key)| add(schema, key).unwrap())
        .to_vec();
        assert_eq!(numbers, [0, 0, 1, 0, 2, 2, 3, 0]);
        let error = add(Some("own"), DataKey::Of(2)).unwrap_err();
        assert!(error.to_string().contains("different data in the schema `own`"), "{error}");
    }

    #[test]
    fn scripts_with_equal_data_share_that_of_the_first_that_makes_it() {
        let script = |rows: &str| {
            format!(
                "sysbench.cmdline.options = {{ range = {{'Range', 1}} }}
                 function prepare() {rows} end
                 function event() end"
            )
        };
        let makes = |table: &str| {
            script(&format!(
                "local con = sysbench.sql.driver():connect()
                 local rs = con:query('SHOW VARIABLES')
                 con:query('CREATE TABLE {table} (a INT)' .. (rs.nrows > 0 and ' COMMENT 1' or ''))"
            ))
        };
        let files = |name: &str| match name {
            "none.lua" => Ok(script("")),
            "a.lua" | "again.lua" => Ok(makes("a")),
            "b.lua" => Ok(makes("b")),
            _ => Err("no such file".to_owned()),
        };
        let names = ["none", "a", "again", "b", "a"];
        let mut text = "name = 'test'\nbaseline = 'a'\n[workload]\nmicrobenchmarks = ['own']\n\
                        [[candidate]]\nname = 'a'\nsystem = 'mariadb'\n\
                        [[candidate]]\nname = 'b'\nsystem = 'postgresql'\n"
            .to_owned();
        for (number, name) in (1..).zip(names) {
            text.push_str(&format!(
                "[[microbenchmark]]\nname = 'm{number}'\nscript = '{name}.lua'\noptions.range = {number}\n"
            ));
        }
        let parsed = dbdyno_spec::parse_with_files("test.toml", &text, &files);
        let mut experiment = parsed.unwrap_or_else(|problems| panic!("{problems}"));
        let assigned = |experiment: &Experiment| -> Vec<(u32, bool)> {
            experiment.workload.scripts().map(|one| (one.data, one.shares_data)).collect()
        };
        assign(&mut experiment, &AtomicBool::new(false), &|_| {}).unwrap();
        let expected = [(0, true), (0, false), (0, true), (1, false), (0, true)];
        assert_eq!(assigned(&experiment), expected);
        assert_eq!(experiment.workload.private_schemas(), ["sbtest", "sbtest_data2"]);
        let mut cancelled = experiment.clone();
        assert!(assign(&mut cancelled, &AtomicBool::new(true), &|_| {}).is_err());
    }
}
