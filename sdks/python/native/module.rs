//! The classes and functions that Python sees; `_native.pyi` documents them.

use std::sync::Arc;
use std::time::Duration;

use onward_bridge::{BridgeError, ErrorKind};
use pyo3::exceptions::{PyBaseException, PyException};
use pyo3::prelude::*;
use pyo3::{create_exception, pymodule};

use crate::convert::{self, Finished, Played};
use crate::wake::Wake;

create_exception!(onward._native, NativeError, PyException);
create_exception!(onward._native, Stopped, PyBaseException);

fn exception(error: BridgeError) -> PyErr {
    match error.kind {
        ErrorKind::Error => NativeError::new_err(error.text),
        ErrorKind::Stopped => Stopped::new_err(error.text),
    }
}

#[pyclass(frozen, module = "onward._native")]
struct Bridge {
    bridge: onward_bridge::Bridge,
    wake: Arc<Wake>,
}

impl Bridge {
    fn open(py: Python<'_>, open: impl FnOnce() -> Result<onward_bridge::Bridge, BridgeError> + Send) -> PyResult<Bridge> {
        py.detach(|| {
            let wake = Arc::new(Wake::new()?);
            let bridge = open().map_err(exception)?;
            let waker = wake.clone();
            bridge.set_wake(move || waker.wake());
            Ok(Bridge { bridge, wake })
        })
    }
}

#[pymethods]
impl Bridge {
    #[staticmethod]
    fn start(py: Python<'_>, settings: String) -> PyResult<Bridge> {
        Bridge::open(py, || onward_bridge::Bridge::start(&settings))
    }

    #[getter]
    fn namespace(&self) -> &str {
        self.bridge.namespace()
    }

    #[getter]
    fn fd(&self) -> i32 {
        self.wake.fd()
    }

    fn take(&self, py: Python<'_>, max: usize) -> PyResult<Vec<Py<PyAny>>> {
        let taken = py.detach(|| {
            self.wake.clear();
            self.bridge.take(max, Duration::ZERO)
        });
        taken.into_iter().map(|work| convert::work(py, work)).collect()
    }

    fn call(&self, py: Python<'_>, run: u64, verb: &str, args: &str) -> PyResult<Py<PyAny>> {
        convert::called(py, self.bridge.call(run, verb, args).map_err(exception)?)
    }

    fn hand_back(&self, py: Python<'_>, played: Vec<Played>) {
        py.detach(|| self.bridge.hand_back(played.into_iter().map(convert::hand_back)));
    }

    fn finish(&self, py: Python<'_>, finished: Vec<Finished>) {
        py.detach(|| finished.into_iter().for_each(|(job, is_ok, text)| self.bridge.finish(job, convert::outcome(is_ok, text))));
    }

    fn task(&self, job: u64, verb: &str, args: &str) -> PyResult<String> {
        self.bridge.task(job, verb, args).map_err(exception)
    }

    #[pyo3(signature = (query, answer))]
    fn answer_query(&self, query: u64, answer: Option<(bool, String)>) {
        self.bridge.answer_query(query, answer.map(|(is_ok, text)| convert::outcome(is_ok, text)));
    }

    fn request(&self, verb: &str, args: &str) -> u64 {
        self.bridge.request(verb, args)
    }

    fn abandon(&self, request: u64) {
        self.bridge.abandon(request);
    }

    fn shut_down(&self, timeout_ms: u64) {
        self.bridge.shut_down(Duration::from_millis(timeout_ms));
    }

    /// Returns the numbers of runs, jobs, requests and queued messages.
    fn stats(&self) -> (usize, usize, usize, usize) {
        let stats = self.bridge.stats();
        (stats.runs, stats.jobs, stats.requests, stats.queued)
    }
}

#[pyfunction]
fn version() -> &'static str {
    onward_bridge::Bridge::version()
}

#[pymodule]
mod _native {
    #[pymodule_export]
    use super::{Bridge, NativeError, Stopped, version};
}
