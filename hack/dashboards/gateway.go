package main

import "github.com/grafana/grafana-foundation-sdk/go/units"

// creates and deletes select the requests that change something.
const (
	creates = `route="/api/sandboxes", method="POST"`
	deletes = `method="DELETE"`
	reads   = `route=~"/api/.+", method="GET"`
)

// gateway is what somebody sees who calls the API.
func gateway() board {
	return board{
		name:  "gateway",
		title: "Sandbox provisioner: what the gateway sees",
		about: "Requests, how long they take, and why they fail. The objectives are those of the alerts.",
		rows: []row{
			{"At a glance", []panel{
				{
					title: "Creates without an error of ours, last hour",
					about: "Share of POST /api/sandboxes that were not answered with 5xx. The objective is 99.5 % over 30 days.",
					unit:  units.PercentUnit, look: number, bad: .995, lowIsBad: true,
					queries: ask("1 - sandbox_provisioner:create_errors:ratio_rate1h", ""),
				},
				{
					title: "Creates carried out within 2 s, last hour",
					about: "Share of accepted creates whose Pod and Service existed within 2 s. The objective is 99 % over 30 days.",
					unit:  units.PercentUnit, look: number, bad: .99, lowIsBad: true,
					queries: ask("1 - sandbox_provisioner:create_slow:ratio_rate1h", ""),
				},
				{
					title: "Sandboxes running",
					about: "Pods in phase Running. Every worker counts all of them, so this is the largest count and no sum.",
					unit:  units.Short, look: number,
					queries: ask("max("+series("sandboxes", `phase="Running"`)+")", ""),
				},
				{
					title: "Alerts that fire",
					about: "Alerts of the provisioner in Prometheus. Each has a section in docs/operations.md.",
					unit:  units.Short, look: number, bad: 1,
					queries: ask(`count(ALERTS{alertstate="firing", alertname=~"SandboxProvisioner.+"}) or vector(0)`, ""),
				},
			}},
			{"Requests", []panel{
				{
					title:   "Which requests come in?",
					about:   `Answered requests by route. "unmatched" are those of paths that do not exist.`,
					unit:    units.RequestsPerSecond,
					look:    stack,
					queries: rates("http_requests_total", "", "method", "route"),
				},
				{
					title:   "How are they answered?",
					about:   "By status code. 4xx is for the caller to repair, 429 asks it to wait, 5xx is ours or that of Kubernetes.",
					unit:    units.RequestsPerSecond,
					look:    stack,
					queries: rates("http_requests_total", "", "code"),
				},
				{
					title:   "How many requests are under way?",
					about:   "A create waits for its outcome, so that this grows when workers or Kubernetes are slow.",
					unit:    units.Short,
					queries: ask("sum by (instance) ("+series("http_requests_in_flight", "")+")", "{{instance}}"),
				},
				{
					title:   "Which share of each route fails with 5xx?",
					about:   "Of the requests of a route, those that were answered with 5xx.",
					unit:    units.PercentUnit,
					queries: ask(share("http_requests_total", `code=~"5.."`, "", "route"), "{{route}}"),
				},
				{
					title:   "Why are callers refused?",
					about:   `Requests that were answered with 401. "no_key_set" is a provisioner without PROVISIONER_API_KEY.`,
					unit:    units.RequestsPerSecond,
					queries: rates("auth_refusals_total", "", "reason"),
				},
				{
					title:   "Who asks too often?",
					about:   "Requests that were answered with 429 because of RATE_LIMIT_RPS, by the name of the key. Full quotas are not counted here.",
					unit:    units.RequestsPerSecond,
					queries: rates("rate_limited_total", "", "key"),
				},
			}},
			{"Latency", []panel{
				{
					title:   "How long does a caller wait for a create?",
					about:   "POST /api/sandboxes until its answer, including the wait for the worker.",
					unit:    units.Seconds,
					queries: quantiles("http_request_duration_seconds", creates),
				},
				{
					title:   "How long does a caller wait for a delete?",
					about:   "DELETE until Kubernetes has accepted it.",
					unit:    units.Seconds,
					queries: quantiles("http_request_duration_seconds", deletes),
				},
				{
					title:   "How long does a caller wait for a read?",
					about:   "All GETs below /api/. They read Kubernetes live.",
					unit:    units.Seconds,
					queries: quantiles("http_request_duration_seconds", reads),
				},
				{
					title:   "How long until Pod and Service exist?",
					about:   "From the acceptance of a create to its objects, over all workers. Creates that failed are not counted.",
					unit:    units.Seconds,
					bad:     2,
					queries: quantiles("accepted_to_created_seconds", ""),
				},
				{
					title:   "How long until a sandbox is ready?",
					about:   "From the acceptance of a create to a Pod that is ready: scheduling, pulling and starting are Kubernetes' part of it.",
					unit:    units.Seconds,
					queries: quantiles("accepted_to_ready_seconds", ""),
				},
				{
					title:   "How long does it take to queue a request safely?",
					about:   "Until NATS has the intent on disk. This is the floor of every create and delete.",
					unit:    units.Seconds,
					queries: quantiles("intent_publish_duration_seconds", ""),
				},
			}},
			{"Reasons", []panel{
				{
					title:   "Why do jobs fail for good?",
					about:   "Outcomes that failed, by reason. The caller gets the same reason, and Kubernetes' text with it.",
					unit:    units.CountsPerSecond,
					queries: rates("outcomes_total", `result="failed"`, "op", "reason"),
				},
				{
					title:   "Why are sandboxes not ready?",
					about:   "Pods that are not ready now, in Kubernetes' words.",
					unit:    units.Short,
					look:    stack,
					queries: ask("max by (reason) ("+series("sandboxes_not_ready", "")+") > 0", "{{reason}}"),
				},
				{
					title: "What becomes of what is asked for?",
					about: "new: a job was queued. joined: an equal one was under way. answered: nothing had to be done. " +
						"conflict: somebody else was faster, and the request was decided again.",
					unit:    units.CountsPerSecond,
					queries: rates("intents_published_total", "", "op", "result"),
				},
				{
					title: "How fast is the budget of errors spent?",
					about: "1 spends exactly the errors that the objective of 99.5 % leaves in 30 days. 14.4 for an hour is 2 % of them, and wakes somebody.",
					unit:  "suffix: ×", bad: 14.4,
					queries: []query{
						{"sandbox_provisioner:create_errors:ratio_rate5m / 0.005", "over 5 min"},
						{"sandbox_provisioner:create_errors:ratio_rate1h / 0.005", "over 1 h"},
						{"sandbox_provisioner:create_errors:ratio_rate6h / 0.005", "over 6 h"},
					},
				},
				{
					title: "How fast is the budget of slow creates spent?",
					about: "The same for the objective that 99 % of creates are carried out within 2 s.",
					unit:  "suffix: ×", bad: 14.4,
					queries: []query{
						{"sandbox_provisioner:create_slow:ratio_rate5m / 0.01", "over 5 min"},
						{"sandbox_provisioner:create_slow:ratio_rate1h / 0.01", "over 1 h"},
						{"sandbox_provisioner:create_slow:ratio_rate6h / 0.01", "over 6 h"},
					},
				},
			}},
		},
	}
}
