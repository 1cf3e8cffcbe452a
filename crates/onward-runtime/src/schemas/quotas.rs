//! Quotas of namespaces: stored among the kinds, enforced by the stores.

use onward_core::Namespace;
use onward_core::api::{PutQuotaRequest, QuotaView};
use onward_core::quota::QuotaSettings;
use onward_core::quota::settings::{quota_kind, settings_row};

use crate::{Runtime, RuntimeError};

impl Runtime {
    /// Replaces the quota of a namespace; it applies to the next start and the next claim of every server.
    ///
    /// # Errors
    /// `quota_invalid`.
    pub async fn put_quota(&self, request: PutQuotaRequest) -> Result<QuotaView, RuntimeError> {
        let PutQuotaRequest { namespace, settings } = request;
        if let Some(why) = settings.problem() {
            return Err(RuntimeError::QuotaInvalid { why });
        }
        self.store_quota(&namespace, Some(QuotaSettings { part: None, ..settings })).await?;
        self.read_quota(namespace).await
    }

    /// Removes the quota of a namespace.
    pub async fn delete_quota(&self, namespace: &Namespace) -> Result<(), RuntimeError> {
        self.store_quota(namespace, None).await
    }

    async fn store_quota(&self, namespace: &Namespace, quota: Option<QuotaSettings>) -> Result<(), RuntimeError> {
        self.store().register_kinds(vec![settings_row(namespace.clone(), quota)?]).await?;
        self.kinds_changed(namespace);
        // A limit may have been raised. Workers of other servers claim after a second at the latest.
        self.hub().workers.wake(Some(namespace));
        Ok(())
    }

    /// Returns the quota of a namespace, as it was set.
    pub(crate) async fn quota_of(&self, namespace: &Namespace) -> Result<Option<QuotaSettings>, RuntimeError> {
        let kind = quota_kind()?;
        let row = self.store().list_kinds(namespace.clone()).await?.into_iter().find(|row| row.kind == kind);
        Ok(row.and_then(|row| row.quota).map(|quota| QuotaSettings { part: None, ..*quota }))
    }

    /// Reads the quota of a namespace, and what is used of it.
    pub async fn read_quota(&self, namespace: Namespace) -> Result<QuotaView, RuntimeError> {
        let settings = self.quota_of(&namespace).await?;
        let used = self.store().quota_use(namespace.clone()).await?;
        let usage = settings.clone().unwrap_or_default().usage(used, self.clock().now());
        Ok(QuotaView { namespace, settings, usage })
    }
}
