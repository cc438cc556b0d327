//! The live optimizer on servers of an agent.

use std::collections::BTreeMap;
use std::path::PathBuf;

use dbdyno_engines::server::Server;
use dbdyno_live::{ServerOptimizer, ServerOptions};

use crate::protocol::{Failed, LiveRequest, Response};

/// The optimizers of all servers, by the agent's number.
pub(super) struct Optimizers {
    all: BTreeMap<u32, ServerOptimizer>,
    /// The directory for their journals.
    journals: PathBuf,
}

impl Optimizers {
    pub const fn new(journals: PathBuf) -> Self {
        Self { all: BTreeMap::new(), journals }
    }

    /// Ends what is done with a server.
    pub fn remove(&mut self, number: u32) {
        self.all.remove(&number);
    }

    /// Does a step with this server; `None` if it does not run.
    pub fn answer(
        &mut self,
        number: u32,
        server: Option<&Server>,
        request: LiveRequest,
    ) -> Result<Response, Failed> {
        let server = server.ok_or_else(|| Failed::because("there is no such server"))?;
        if let LiveRequest::StartSampling(options) | LiveRequest::OptimizeBy(options, ..) = &request
        {
            self.begin(number, server, *options);
        }
        let optimizer = self.all.get_mut(&number);
        let optimizer = optimizer.ok_or_else(|| Failed::because("the server was not sampled"))?;
        match request {
            LiveRequest::StartSampling(_) => optimizer.start_sampling(),
            LiveRequest::EndSampling => {
                return optimizer.end_sampling().map(Response::Sampled).map_err(Failed::because);
            }
            LiveRequest::StartCounting => optimizer.start_counting(),
            LiveRequest::EndCounting => optimizer.end_counting().map_err(Failed::because)?,
            LiveRequest::Optimize => {
                let optimized = optimizer.optimize().map_err(Failed::because)?;
                return Ok(Response::Optimized(Box::new(optimized)));
            }
            LiveRequest::OptimizeBy(_, profile, source) => {
                let optimized = optimizer.optimize_by(&profile, source);
                let optimized = optimized.map_err(Failed::because)?;
                return Ok(Response::Optimized(Box::new(optimized)));
            }
        }
        Ok(Response::Done)
    }

    fn begin(&mut self, number: u32, server: &Server, options: ServerOptions) {
        // An earlier one ends first.
        self.all.remove(&number);
        let (pid, family) = (server.pid(), server.has_process_per_session());
        let optimizer = ServerOptimizer::new(pid, family, options, self.journals.clone());
        self.all.insert(number, optimizer);
    }
}
