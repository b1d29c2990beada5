// The boards, alerts and rules of this folder as a Prometheus mixin. The files are the source: nothing is said here that they do not
// say, but for what `_config` changes.
local boards = {
  'fencegate-overview.json': import '../grafana/overview.json',
  'fencegate-locks.json': import '../grafana/locks.json',
  'fencegate-lateness.json': import '../grafana/lateness.json',
  'fencegate-storage.json': import '../grafana/storage.json',
  'fencegate-upstreams.json': import '../grafana/upstreams.json',
  'fencegate-access.json': import '../grafana/access.json',
  'fencegate-jobs.json': import '../grafana/jobs.json',
};
local alerts = importstr '../prometheus/alerts.yaml';
local rules = importstr '../prometheus/rules.yaml';

{
  _config+:: {
    // Which targets are gateways.
    gatewaySelector: 'job="fencegate"',
    // Where the runbook is, for `runbook_url`: an address that whoever is called at night can open.
    runbook: 'docs/runbook.md',
    // Added to the tags of each board.
    tags: [],
  },

  local config = self._config,

  grafanaDashboards+:: { [name]: boards[name] { tags+: config.tags } for name in std.objectFields(boards) },

  prometheusAlerts+:: std.parseYaml(
    std.strReplace(
      std.strReplace(alerts, 'job="fencegate"', config.gatewaySelector),
      'runbook_url: docs/runbook.md#',
      'runbook_url: ' + config.runbook + '#',
    )
  ),

  prometheusRules+:: std.parseYaml(rules),
}
