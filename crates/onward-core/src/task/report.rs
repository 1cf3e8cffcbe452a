//! Reports of a worker about its current attempt, and their encoding.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::TaskId;
use crate::log::codec::{DecodeError, Field, Raw, Reader, put_nested, put_number};
use crate::log::event::TaskAttemptEnded;
use crate::log::schema::{FieldLine, Proto, Schema};
use crate::spend::AttemptSpend;
use crate::{Failure, Payload, WorkerId};

/// A report of a worker about its current attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskReport {
    Completed(Payload),
    Failed(Failure),
    /// The worker stopped the attempt, or may not continue it. Its code may have begun.
    Interrupted,
    Heartbeat {
        progress: Option<Payload>,
    },
    /// The attempt was handed out, and its code is known never to have been called.
    NotStarted,
    /// The worker is gone without a report. Its code may have begun.
    WorkerLost,
    /// One of the others, with the cost of the attempt. In the encoding the cost is a separate field.
    Spent {
        report: Box<TaskReport>,
        spend: Box<AttemptSpend>,
    },
    /// One of the others, reported by a server on its own for a worker's session. It is stale once the worker has moved the
    /// attempt to another session (K10). Never encoded.
    #[serde(skip)]
    BySession {
        session: WorkerId,
        report: Box<TaskReport>,
    },
    /// The worker has moved to `session` with its attempt: a heartbeat, and from now on that session reports for the worker
    /// (K10). Never encoded.
    #[serde(skip)]
    Adopted {
        session: WorkerId,
    },
}

impl TaskReport {
    /// Adds the cost of the attempt, if there is any.
    pub fn with_spend(self, spend: AttemptSpend) -> TaskReport {
        if spend.lines.is_empty() { self } else { TaskReport::Spent { report: Box::new(self), spend: Box::new(spend) } }
    }

    /// Returns the same report, made by a server on its own for a worker's session (K10).
    pub fn by_session(self, session: WorkerId) -> TaskReport {
        TaskReport::BySession { session, report: Box::new(self) }
    }

    /// Returns the report without cost and session.
    pub fn without_cost(&self) -> &TaskReport {
        match self {
            TaskReport::Spent { report, .. } | TaskReport::BySession { report, .. } => report.without_cost(),
            report => report,
        }
    }

    /// Returns true if the worker no longer holds the attempt, even if the report is rejected.
    pub fn releases_attempt(&self) -> bool {
        matches!(self.without_cost(), TaskReport::Interrupted | TaskReport::NotStarted | TaskReport::WorkerLost)
    }

    /// Returns true if the report ends the attempt.
    pub fn ends(&self) -> bool {
        !matches!(self.without_cost(), TaskReport::Heartbeat { .. } | TaskReport::Adopted { .. })
    }

    /// Returns the event for the cost of claim number `claim`, if the report has one and ends the attempt.
    pub fn attempt_ended(&self, id: &TaskId, claim: u64) -> Option<TaskAttemptEnded> {
        let spend = match self {
            TaskReport::Spent { spend, .. } => spend,
            TaskReport::BySession { report, .. } => return report.attempt_ended(id, claim),
            _ => return None,
        };
        let failure_code = match self.without_cost() {
            TaskReport::Failed(failure) => Some(failure.code.clone()),
            TaskReport::Completed(_) => None,
            TaskReport::NotStarted => Some("not_started".to_owned()),
            _ => Some("interrupted".to_owned()),
        };
        self.ends().then(|| TaskAttemptEnded {
            call_id: id.call_id.clone(),
            generation: id.generation,
            attempt: spend.attempt,
            claim,
            began_at: spend.began_at,
            ledger_name: spend.ledger_name.clone(),
            failure_code,
            spend: spend.lines.clone(),
        })
    }

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            TaskReport::Completed(output) => output.encode(1, out),
            TaskReport::Failed(failure) => failure.encode(2, out),
            TaskReport::Interrupted => put_number(3, 1, out),
            TaskReport::Heartbeat { progress } => put_nested(4, out, |out| progress.encode(1, out)),
            TaskReport::NotStarted => put_number(6, 1, out),
            TaskReport::WorkerLost => put_number(7, 1, out),
            TaskReport::Spent { report, spend } => {
                report.put(out);
                spend.encode(5, out);
            }
            TaskReport::BySession { report, .. } => report.put(out),
            TaskReport::Adopted { .. } => TaskReport::Heartbeat { progress: None }.put(out),
        }
    }
}

impl Field for TaskReport {
    fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_nested(number, out, |out| self.put(out));
    }
    fn decode(raw: Raw<'_>) -> Result<TaskReport, DecodeError> {
        let mut reader = Reader::new(raw.bytes("report")?);
        let (mut report, mut spend) = (None, None);
        while let Some((number, raw)) = reader.field()? {
            match number {
                1 => report = Some(TaskReport::Completed(Payload::decode(raw)?)),
                2 => report = Some(TaskReport::Failed(Failure::decode(raw)?)),
                3 => report = Some(TaskReport::Interrupted),
                4 => {
                    let field = Reader::new(raw.bytes("heartbeat")?).field()?;
                    let progress = field.map(|(_, raw)| Option::<Payload>::decode(raw)).transpose()?.flatten();
                    report = Some(TaskReport::Heartbeat { progress });
                }
                5 => spend = Some(AttemptSpend::decode(raw)?),
                6 => report = Some(TaskReport::NotStarted),
                7 => report = Some(TaskReport::WorkerLost),
                _ => {}
            }
        }
        let report = report.ok_or(DecodeError::Invalid { what: "report" })?;
        Ok(match spend {
            None => report,
            Some(spend) => TaskReport::Spent { report: Box::new(report), spend: Box::new(spend) },
        })
    }
    #[inline]
    fn proto(schema: &mut Schema) -> Proto {
        let heartbeat =
            schema.message("TaskHeartbeat", &[], |schema| vec![FieldLine::new(1, "progress", Option::<Payload>::proto(schema))]);
        let docs = &["doc = \"The cost of the attempt; goes with any of the above.\""];
        let spend = FieldLine { docs, ..FieldLine::new(5, "spend", AttemptSpend::proto(schema)) };
        let docs = &["doc = \"A report of a worker about its current attempt.\""];
        let report = schema.one_of("TaskReport", docs, "is", vec![spend], |schema| {
            vec![
                FieldLine::new(1, "completed", Payload::proto(schema)),
                FieldLine::new(2, "failed", Failure::proto(schema)),
                FieldLine::new(3, "interrupted", Proto::scalar("bool")),
                FieldLine::new(4, "heartbeat", heartbeat.clone()),
                FieldLine::new(6, "not_started", Proto::scalar("bool")),
                FieldLine::new(7, "worker_lost", Proto::scalar("bool")),
            ]
        });
        // In JSON, a report without fields is a text, and one with a cost is inside of another.
        let reference = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});
        let fields = json!({"report": reference("TaskReport"), "spend": reference("AttemptSpend")});
        schema.set_json("SpentReport", json!({"type": "object", "properties": fields, "required": ["report", "spend"]}));
        let objects = [
            FieldLine::new(1, "completed", Payload::proto(schema)),
            FieldLine::new(2, "failed", Failure::proto(schema)),
            FieldLine::new(4, "heartbeat", heartbeat),
            FieldLine::new(5, "spent", Proto::scalar("SpentReport")),
        ];
        schema.set_json_choice("TaskReport", docs, &objects);
        let mut json = schema.json()["TaskReport"].clone();
        if let Some(members) = json["oneOf"].as_array_mut() {
            members.push(json!({"type": "string", "enum": ["interrupted", "not_started", "worker_lost"]}));
        }
        schema.set_json("TaskReport", json);
        report
    }
}
