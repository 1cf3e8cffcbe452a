//! Quotas of namespaces.

use crate::quota::{QuotaSettings, QuotaUsage};
use crate::{Namespace, message};

message! {
    #[derive(Eq)]
    pub struct QuotaRequest { 1 => namespace: Namespace }

    /// Replaces the quota of a namespace.
    #[derive(Eq)]
    pub struct PutQuotaRequest { 1 => namespace: Namespace, 2 => settings: QuotaSettings }

    /// The quota of a namespace, and what is used of it.
    #[derive(Eq)]
    pub struct QuotaView {
        1 => namespace: Namespace,
        /// `null` if it has none.
        2 => settings: Option<QuotaSettings>,
        3 => usage: QuotaUsage,
    }
}
