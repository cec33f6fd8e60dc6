//! An agent that answers as a test wants, and notes what it was asked.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::error::Result;
use crate::libvirt::{AgentCalls, DomainRef};

type Answers = dyn Fn(&str, &Value) -> Result<Value> + Send + Sync;

/// The agent.
#[derive(Clone)]
pub(super) struct Fake {
    answers: Arc<Answers>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Fake {
    /// One that answers each command, with these arguments, by that.
    pub(super) fn new(
        answers: impl Fn(&str, &Value) -> Result<Value> + Send + Sync + 'static,
    ) -> Self {
        Fake {
            answers: Arc::new(answers),
            asked: Arc::default(),
        }
    }

    /// The commands that came.
    pub(super) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

impl AgentCalls for Fake {
    fn agent_command(&self, _domain: &DomainRef, text: &str, _limit: Duration) -> Result<String> {
        let request: Value = serde_json::from_str(text).unwrap();
        let command = request["execute"].as_str().unwrap();
        self.asked.lock().unwrap().push(command.to_owned());
        let answer = (self.answers)(command, &request["arguments"])?;
        Ok(json!({ "return": answer }).to_string())
    }
}

/// The domain whose guest it is in.
pub(super) fn domain() -> DomainRef {
    DomainRef {
        name: "web1".to_owned(),
        uuid: "00000000-0000-0000-0000-000000000001".to_owned(),
    }
}
