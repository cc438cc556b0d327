//! The tasks of a fleet run: which node does what.

use crate::jobs::Node;
use crate::record::{Request, TaskRecord, is_task_name};

/// A fleet run cannot be planned.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Too few nodes can be used.
    #[error(
        "{wanted} nodes are requested, and {partition} has {usable} that can be used{broken}. Choose \
         --nodes {usable}, or another partition"
    )]
    TooFewNodes {
        /// The number that was asked for.
        wanted: usize,
        /// The partition, in words.
        partition: String,
        /// The number that can be used.
        usable: usize,
        /// The others with their states, in words.
        broken: String,
    },
    #[error("unknown node {node} in {partition}; its nodes are {known}")]
    UnknownNode {
        node: String,
        /// The partition, in words.
        partition: String,
        /// The nodes that are there.
        known: String,
    },
    #[error("node {0} is named twice")]
    Twice(String),
    /// There are more nodes than microbenchmarks.
    #[error("{nodes} nodes cannot share {microbenchmarks} microbenchmarks: use fewer nodes")]
    TooFewMicrobenchmarks { nodes: usize, microbenchmarks: usize },
}

/// How many nodes, or which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeChoice {
    /// Any nodes of the partition.
    Count(usize),
    Named(Vec<String>),
}

/// Chooses the nodes: the named ones, or idle ones before busy ones.
pub fn choose_nodes(
    request: &Request,
    choice: &NodeChoice,
    nodes: &[Node],
) -> Result<Vec<String>, PlanError> {
    match choice {
        NodeChoice::Named(names) => {
            for (index, name) in names.iter().enumerate() {
                if names[..index].contains(name) {
                    return Err(PlanError::Twice(name.clone()));
                }
                if !nodes.iter().any(|node| node.name == *name) {
                    let known: Vec<&str> =
                        nodes.iter().take(10).map(|node| node.name.as_str()).collect();
                    let more = if nodes.len() > 10 { " …" } else { "" };
                    let known = format!("{}{more}", known.join(", "));
                    let partition = partition(request);
                    return Err(PlanError::UnknownNode { node: name.clone(), partition, known });
                }
            }
            Ok(names.clone())
        }
        NodeChoice::Count(wanted) => {
            let mut usable: Vec<&Node> = nodes.iter().filter(|node| node.is_usable()).collect();
            if usable.len() < *wanted {
                let broken: Vec<String> = nodes
                    .iter()
                    .filter(|node| !node.is_usable())
                    .map(|node| format!("{} is {}", node.name, node.state))
                    .collect();
                let broken = match broken.is_empty() {
                    true => String::new(),
                    false => format!("; {}", broken.join(", ")),
                };
                let (wanted, usable) = (*wanted, usable.len());
                let partition = partition(request);
                return Err(PlanError::TooFewNodes { wanted, partition, usable, broken });
            }
            usable.sort_by_key(|node| !node.is_idle());
            Ok(usable[..*wanted].iter().map(|node| node.name.clone()).collect())
        }
    }
}

/// One task for each node, with all microbenchmarks or with a share of them.
pub fn tasks(
    nodes: &[String],
    microbenchmarks: &[String],
    shard: bool,
) -> Result<Vec<TaskRecord>, PlanError> {
    if !shard {
        let is_node = |name: &str| nodes.iter().any(|node| node == name);
        let task = |node: &String| match is_task_name(node) {
            true => TaskRecord::new(node, node, None),
            // dbdyno has files of that name beside those of the tasks.
            false => TaskRecord::new(&free_name(format!("node-{node}"), is_node), node, None),
        };
        return Ok(nodes.iter().map(task).collect());
    }
    if nodes.len() > microbenchmarks.len() {
        let (nodes, microbenchmarks) = (nodes.len(), microbenchmarks.len());
        return Err(PlanError::TooFewMicrobenchmarks { nodes, microbenchmarks });
    }
    // Dealt in turn: neighbours in the running order take about equally long, so that no node gets all
    // of the slow ones.
    let share = |index: usize| {
        microbenchmarks.iter().skip(index).step_by(nodes.len()).cloned().collect::<Vec<_>>()
    };
    let digits = nodes.len().to_string().len();
    let task = |(index, node): (usize, &String)| {
        TaskRecord::new(&format!("shard-{:0digits$}", index + 1), node, Some(share(index)))
    };
    Ok(nodes.iter().enumerate().map(task).collect())
}

/// Puts tasks that compile what the others need before them: one, or one for each node if builds depend on
/// the CPU, whose type only the node knows.
pub fn with_builds(tasks: Vec<TaskRecord>, for_each_node: bool) -> Vec<TaskRecord> {
    let number = if for_each_node { tasks.len() } else { 1 };
    let build = |task: &TaskRecord| {
        let name = if for_each_node { format!("build-{}", task.node) } else { "build".to_owned() };
        let name = free_name(name, |name| tasks.iter().any(|other| other.name == name));
        TaskRecord { builds: true, ..TaskRecord::new(&name, &task.node, None) }
    };
    let builds: Vec<TaskRecord> = tasks.iter().take(number).map(build).collect();
    builds.into_iter().chain(tasks).collect()
}

/// A name that is not taken: a node may have the wanted one.
fn free_name(mut name: String, is_taken: impl Fn(&str) -> bool) -> String {
    while is_taken(&name) {
        name.push('_');
    }
    name
}

/// The partition in words.
pub(crate) fn partition(request: &Request) -> String {
    let features = match &request.constraint {
        Some(constraint) => format!(" with {constraint}"),
        None => String::new(),
    };
    match &request.partition {
        Some(partition) => format!("partition {partition}{features}"),
        None => format!("the default partition{features}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::sample::request;

    fn node(name: &str, state: &str) -> Node {
        Node { name: name.to_owned(), state: state.to_owned(), features: Vec::new(), cpus: 2 }
    }

    #[test]
    fn idle_nodes_are_chosen_before_busy_ones_and_broken_ones_never() {
        let nodes = [
            node("a", "allocated"),
            node("b", "down*"),
            node("c", "idle"),
            node("d", "drained"),
            node("e", "idle"),
        ];
        let choose = |count| choose_nodes(&request(), &NodeChoice::Count(count), &nodes);
        assert_eq!(choose(2).unwrap(), ["c", "e"]);
        assert_eq!(choose(3).unwrap(), ["c", "e", "a"]);
        assert_eq!(
            choose(4).unwrap_err().to_string(),
            "4 nodes are requested, and partition main has 3 that can be used; b is down*, d is \
             drained. Choose --nodes 3, or another partition"
        );
    }

    #[test]
    fn named_nodes_must_be_known_and_different() {
        let nodes = [node("a", "down"), node("b", "idle")];
        let choose = |names: &[&str]| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            choose_nodes(&request(), &NodeChoice::Named(names), &nodes)
        };
        assert_eq!(choose(&["b", "a"]).unwrap(), ["b", "a"], "a may come back");
        assert_eq!(choose(&["b", "b"]), Err(PlanError::Twice("b".to_owned())));
        assert_eq!(
            choose(&["x"]).unwrap_err().to_string(),
            "unknown node x in partition main; its nodes are a, b"
        );
    }

    #[test]
    fn builds_come_first_with_names_that_no_node_has() {
        let nodes = ["build", "n2"].map(str::to_owned);
        let names = |for_each_node| -> Vec<(String, String, bool)> {
            let tasks = with_builds(tasks(&nodes, &[], false).unwrap(), for_each_node);
            tasks.into_iter().map(|task| (task.name, task.node, task.builds)).collect()
        };
        let row = |name: &str, node: &str, builds| (name.to_owned(), node.to_owned(), builds);
        let measuring = [row("build", "build", false), row("n2", "n2", false)];
        assert_eq!(names(false), [&[row("build_", "build", true)][..], &measuring].concat());
        let builds = [row("build-build", "build", true), row("build-n2", "n2", true)];
        assert_eq!(names(true), [&builds[..], &measuring].concat());
    }

    #[test]
    fn node_with_the_name_of_a_file_of_dbdyno_has_a_task_of_another_name() {
        let nodes = ["data", "node-data", "fleet.json", "n1"].map(str::to_owned);
        let tasks = tasks(&nodes, &[], false).unwrap();
        let names: Vec<(&str, &str)> = tasks.iter().map(|one| (&*one.name, &*one.node)).collect();
        assert_eq!(
            names,
            [
                ("node-data_", "data"),
                ("node-data", "node-data"),
                ("node-fleet.json", "fleet.json"),
                ("n1", "n1")
            ]
        );
    }

    #[test]
    fn shards_have_each_microbenchmark_once() {
        let nodes: Vec<String> = (1..=10).map(|number| format!("n{number}")).collect();
        let all: Vec<String> = (0..42).map(|number| format!("m{number:02}")).collect();
        let tasks = tasks(&nodes, &all, true).unwrap();
        assert_eq!((&*tasks[0].name, &*tasks[9].name), ("shard-01", "shard-10"));
        let shares: Vec<Vec<String>> =
            tasks.into_iter().filter_map(|task| task.microbenchmarks).collect();
        assert!(shares.iter().all(|share| matches!(share.len(), 4 | 5)));
        let mut together = shares.concat();
        together.sort();
        assert_eq!(together, all);
        assert!(super::tasks(&nodes, &all[..9], true).is_err());
    }
}
