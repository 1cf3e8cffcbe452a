//! Tests of the parent module.

use super::*;

fn open(documents: &Path, namespaces: &[&str]) -> Result<FlowSettings, Mistake> {
    let mut config = Config::default();
    config.flag("flows.documents", "--x", Some(documents.display().to_string()));
    FlowSettings::open(&config, None, namespaces.iter().map(|name| Namespace::new(*name).unwrap()).collect())
}

/// S6: files of one namespace are out of the reach of the flows of another one.
#[test]
fn a_directory_of_documents_is_not_shared_by_namespaces() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(open(folder.path(), &["shop"]).unwrap().documents.as_deref(), Some(folder.path()));
    let refused = open(folder.path(), &["shop", "bank"]).unwrap_err();
    assert!(refused.message.contains("`flows.documents`"), "{}", refused.message);
}

#[test]
fn a_directory_of_flows_must_exist() {
    let missing = Some(PathBuf::from("/nonexistent"));
    let refused = FlowSettings::open(&Config::default(), missing, vec![Namespace::default()]).unwrap_err();
    assert!(refused.message.contains("/nonexistent"), "{}", refused.message);
}
