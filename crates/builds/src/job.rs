use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use dbdyno_units::Nanos;

use crate::binary::BinarySizes;
use crate::cache::Reservation;
use crate::error::StepFailure;
use crate::failure::{self, Cause};
use crate::make::{Event, Prepared, Progress};
use crate::recipe::{self, Plan, Step};
use crate::shell::quote;
use crate::{Build, BuildError, Cache, CompilerUsed, Sha256, child};

/// One distinct build, from the look into the cache to the finished folder.
pub(crate) struct Job<'a> {
    pub(crate) cache: &'a Cache,
    pub(crate) cancel: &'a AtomicBool,
    pub(crate) prepared: &'a Prepared<'a>,
    pub(crate) progress: Progress<'a>,
}

impl Job<'_> {
    pub(crate) fn run(&self) -> Result<Build, BuildError> {
        if let Some(build) = self.cached() {
            return Ok(build);
        }
        if self.cancel.load(Ordering::Relaxed) {
            return Err(self.cancelled());
        }
        let Prepared { request, fingerprint, .. } = self.prepared;
        let on_wait = || (self.progress)(Event::Waiting { request });
        let Some(reservation) = self.cache.reserve(fingerprint, self.cancel, on_wait)? else {
            return Err(self.cancelled());
        };
        // Somebody else may have finished it between the first look and the lock.
        if let Some(build) = self.cached() {
            return Ok(build);
        }
        (self.progress)(Event::Started { request });
        let build = self.make(reservation)?;
        (self.progress)(Event::Finished { request, time: build.compile_time });
        Ok(build)
    }

    fn cached(&self) -> Option<Build> {
        let build = self.cache.get(&self.prepared.fingerprint)?;
        (self.progress)(Event::Cached { request: self.prepared.request });
        Some(build)
    }

    fn make(&self, reservation: Reservation<'_>) -> Result<Build, BuildError> {
        let Prepared { request, flags, .. } = self.prepared;
        let source_dir = request.source.unpack(&self.cache.sources())?;
        let plan = recipe::plan(&request.source, &source_dir, &request.compiler, flags);
        let temp = reservation.begin()?;
        let part = reservation.part();
        let mut log = Log::create(&part)?;

        let start = Instant::now();
        for step in &plan.steps {
            let status = self.run_step(step, &temp, &mut log, &reservation)?;
            if !status.success() {
                return Err(self.explain(step, &plan, status, log, reservation));
            }
        }
        let compile_time = Nanos::from(start.elapsed());

        for file in &plan.scratch {
            let file = part.join(file);
            fs::remove_file(&file).map_err(|error| BuildError::io("removing", &file, error))?;
        }
        let build = self.describe(&plan, &part, compile_time)?;
        reservation.commit(&build)?;
        Ok(build)
    }

    fn run_step(
        &self,
        step: &Step,
        temp: &Path,
        log: &mut Log,
        reservation: &Reservation<'_>,
    ) -> Result<ExitStatus, BuildError> {
        let part = reservation.part();
        log.begin(step).map_err(|error| BuildError::io("writing", &part.join(Log::NAME), error))?;
        child::run(step, &part, temp, &log.file, reservation.lock(), self.cancel)
            .map_err(|error| BuildError::io("starting", &step.program, error))?
            .ok_or_else(|| self.cancelled())
    }

    /// Turns a step that failed into an error, and keeps the log.
    fn explain(
        &self,
        step: &Step,
        plan: &Plan,
        status: ExitStatus,
        mut log: Log,
        reservation: Reservation<'_>,
    ) -> BuildError {
        let message = log.message();
        let cause = failure::cause(status, &message);
        if cause == Cause::DiskFull {
            // A log that could be written may still not be worth keeping on a full disk.
            return BuildError::DiskFull {
                doing: format!("{} in", step.name),
                path: reservation.part(),
            };
        }
        let folder = reservation.failed();
        let failure = |ended: String| {
            Box::new(StepFailure {
                what: self.prepared.request.to_string(),
                step: step.name.clone(),
                command: format!("cd {} && {}", quote(&folder.to_string_lossy()), step.to_shell()),
                ended,
                message: failure::last_lines(&message),
                log: reservation.keep_failed(&plan.scratch),
            })
        };
        match cause {
            Cause::Interrupted(how) => BuildError::Interrupted(failure(how)),
            Cause::Refused | Cause::DiskFull => BuildError::Failed(failure(status.to_string())),
        }
    }

    fn describe(&self, plan: &Plan, part: &Path, compile_time: Nanos) -> Result<Build, BuildError> {
        let Prepared { request, flags, fingerprint } = self.prepared;
        let made = part.join(&plan.artifact);
        let content = fs::read(&made).map_err(|error| BuildError::io("reading", &made, error))?;
        let sizes = BinarySizes::of(&content).map_err(|reason| BuildError::Unusable {
            what: request.to_string(),
            path: plan.artifact.clone(),
            reason,
        })?;
        Ok(Build {
            fingerprint: *fingerprint,
            system: request.source.system(),
            source_version: request.source.version().to_owned(),
            source_sha256: *request.source.sha256(),
            variant: request.variant.name.to_owned(),
            compiler: CompilerUsed::from(&request.compiler),
            flags: flags.compile.clone(),
            link_flags: flags.link.clone(),
            commands: plan.steps.iter().map(Step::to_shell).collect(),
            library: self.cache.folder(fingerprint).join(&plan.artifact),
            library_sha256: Sha256::of(&content),
            text_size: sizes.text,
            executable_size: sizes.executable,
            stripped_size: sizes.stripped,
            file_size: sizes.file,
            compile_time,
        })
    }

    fn cancelled(&self) -> BuildError {
        BuildError::Cancelled { what: self.prepared.request.to_string() }
    }
}

/// The commands of a build and all that they print, in one file.
struct Log {
    file: File,
    /// Where the output of the last command starts.
    output_start: u64,
}

impl Log {
    const NAME: &str = "log.txt";

    fn create(folder: &Path) -> Result<Self, BuildError> {
        let path = folder.join(Self::NAME);
        File::options()
            .read(true)
            .append(true)
            .create(true)
            .open(&path)
            .map(|file| Self { file, output_start: 0 })
            .map_err(|error| BuildError::io("creating", &path, error))
    }

    fn begin(&mut self, step: &Step) -> io::Result<()> {
        writeln!(self.file, "$ {}", step.to_shell())?;
        self.output_start = self.file.metadata()?.len();
        Ok(())
    }

    /// What the last command printed; nothing if that cannot be read.
    fn message(&mut self) -> String {
        let mut output = Vec::new();
        let _ = self
            .file
            .seek(SeekFrom::Start(self.output_start))
            .and_then(|_| self.file.read_to_end(&mut output));
        String::from_utf8_lossy(&output).into_owned()
    }
}
