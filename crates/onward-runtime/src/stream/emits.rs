//! Values that runs emit for listeners; not in the log.

use std::collections::HashMap;
use std::sync::Mutex;

use onward_core::RunKey;
use onward_core::live::LiveContent;
use onward_store::sync::lock;
use tokio::sync::broadcast;

use crate::{Emitted, Runtime};

/// Number of emitted values that a slow listener may fall behind.
const BEHIND_MAX: usize = 256;

#[derive(Default)]
pub(crate) struct Emits {
    listeners: Mutex<HashMap<RunKey, broadcast::Sender<Emitted>>>,
}

impl Emits {
    pub fn send(&self, key: &RunKey, emitted: Emitted) {
        let sender = lock(&self.listeners).get(key).cloned();
        if let Some(sender) = sender {
            drop(sender.send(emitted)); // fails if there is no listener, which is fine
        }
    }

    /// Returns the runs that have listeners.
    pub fn runs(&self) -> Vec<RunKey> {
        let mut listeners = lock(&self.listeners);
        listeners.retain(|_, sender| sender.receiver_count() > 0);
        listeners.keys().cloned().collect()
    }
}

impl Runtime {
    /// Subscribes to what the run emits from now on, also at a worker of another process that shares the store. Values without
    /// a listener are lost.
    pub fn listen(&self, key: &RunKey) -> broadcast::Receiver<Emitted> {
        let mut listeners = lock(&self.hub().emits.listeners);
        listeners.retain(|_, sender| sender.receiver_count() > 0);
        let receiver = listeners.entry(key.clone()).or_insert_with(|| broadcast::channel(BEHIND_MAX).0).subscribe();
        drop(listeners);
        self.hub().broadcast.listening();
        receiver
    }

    pub(crate) fn emit(&self, key: &RunKey, emitted: Emitted) {
        self.send_live(key, || LiveContent::Emitted(emitted.clone()));
        self.hub().broadcast.emitted(key, &emitted);
        self.hub().emits.send(key, emitted);
    }
}
