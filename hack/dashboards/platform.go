package main

import "github.com/grafana/grafana-foundation-sdk/go/units"

// ours is for metrics that other processes have too: whatever their job is called, ours are those that tell their build.
const ours = " and on (job, instance) " + prefix + "build_info"

// platform is what we stand on, as we see it.
func platform() board {
	return board{
		name:  "platform",
		title: "Sandbox provisioner: Kubernetes, NATS and processes",
		about: "What the provisioner stands on, as its processes see it. The servers' own dashboards have the inside.",
		rows: []row{
			{"Kubernetes", []panel{
				{
					title: "Does Kubernetes answer?",
					about: "The last request of each process, or its check every ten seconds. One process alone: look at its network.",
					unit:  units.BoolYesNo, look: onOff, bad: 1, lowIsBad: true,
					queries: ask(series("kubernetes_reachable", ""), "{{job}} {{instance}}"),
				},
				{
					title:   "What do we ask of Kubernetes?",
					about:   "Requests by verb and resource. A create costs two, a read two, a delete four.",
					unit:    units.RequestsPerSecond,
					look:    stack,
					queries: rates("kubernetes_requests_total", "", "verb", "resource"),
				},
				{
					title:   "How does Kubernetes answer?",
					about:   "By code: 409 and 404 are ordinary, 403 is a full quota or a missing right, 429 is overload, error is no answer.",
					unit:    units.RequestsPerSecond,
					queries: rates("kubernetes_requests_total", "", "code"),
				},
				{
					title:   "Which share of requests fails?",
					about:   "429, 5xx and requests without an answer. The provisioner tries again, so that callers may see nothing but delay.",
					unit:    units.PercentUnit,
					queries: ask(share("kubernetes_requests_total", `code=~"429|5..|error"`, ""), "failed"),
				},
				{
					title:   "How long do writes take?",
					about:   "99 % of creates and deletes are answered within this time.",
					unit:    units.Seconds,
					queries: ask(quantile("0.99", "kubernetes_request_duration_seconds", `verb=~"create|delete"`, "verb", "resource"), "{{verb}} {{resource}}"),
				},
				{
					title:   "How long do reads take?",
					about:   "99 % of gets and lists are answered within this time.",
					unit:    units.Seconds,
					queries: ask(quantile("0.99", "kubernetes_request_duration_seconds", `verb=~"get|list"`, "verb", "resource"), "{{verb}} {{resource}}"),
				},
				{
					title:   "How long do requests wait for our own limit?",
					about:   "Seconds of waiting in each second, by process. Nothing unless K8S_QPS is set.",
					unit:    units.Seconds,
					queries: ask("sum by (job, instance) (rate("+series("kubernetes_client_throttle_seconds_sum", "")+"[$__rate_interval]))", "{{job}} {{instance}}"),
				},
				{
					title:   "In which phase are the sandboxes?",
					about:   "Pods by phase. Pending for long: see why they are not ready, or whether there is room in the cluster.",
					unit:    units.Short,
					look:    stack,
					queries: ask("max by (phase) ("+series("sandboxes", "")+")", "{{phase}}"),
				},
				{
					title: "Which share of the unready cannot pull its image?",
					about: "Of the sandboxes that are not ready, those whose image cannot be pulled. All of them: the image or its registry is gone.",
					unit:  units.PercentUnit, bad: .5,
					queries: ask("sandbox_provisioner:image_pull_failures:ratio", "share"),
				},
			}},
			{"NATS", []panel{
				{
					title: "Is every process connected to NATS?",
					about: "One process alone: look at its network. All: NATS is down, and every create and delete is answered with 503.",
					unit:  units.BoolYesNo, look: onOff, bad: 1, lowIsBad: true,
					queries: ask(series("nats_connected", ""), "{{job}} {{instance}}"),
				},
				{
					title:   "How often do connections break?",
					about:   "Reconnections in the interval that a point stands for.",
					unit:    units.Short,
					queries: ask("sum by (job, instance) (increase("+series("nats_reconnects_total", "")+"[$__rate_interval]))", "{{job}} {{instance}}"),
				},
				{
					title:   "How long does NATS take to store a job?",
					about:   "99 % of intents are acknowledged, and on disk, within this time. It is the disk of NATS that makes it long.",
					unit:    units.Seconds,
					queries: ask(quantile("0.99", "intent_publish_duration_seconds", "", "op"), "{{op}}"),
				},
				{
					title:   "Can jobs be stored?",
					about:   "Requests that could not be queued. The callers got 503.",
					unit:    units.CountsPerSecond,
					queries: rates("intents_published_total", `result="error"`, "op"),
				},
			}},
			{"Processes", []panel{
				{
					title:   "Which versions run?",
					about:   "Processes by version. Two for longer than a roll-out are a roll-out that is stuck.",
					unit:    units.Short,
					look:    stack,
					queries: ask("count by (job, version) ("+series("build_info", "")+")", "{{job}} {{version}}"),
				},
				{
					title:   "How much CPU do they use?",
					about:   "1 is one core.",
					unit:    "suffix: cores",
					queries: ask("rate(process_cpu_seconds_total[$__rate_interval])"+ours, "{{job}} {{instance}}"),
				},
				{
					title:   "How much memory do they use?",
					about:   "Resident memory. The limit of the container is what it must stay below.",
					unit:    units.BytesIEC,
					queries: ask("process_resident_memory_bytes"+ours, "{{job}} {{instance}}"),
				},
				{
					title:   "How many goroutines do they have?",
					about:   "About one for each request and job under way. One that only grows is a leak.",
					unit:    units.Short,
					queries: ask("go_goroutines"+ours, "{{job}} {{instance}}"),
				},
				{
					title: "How many of their files are open?",
					about: "Share of the limit, connections included. At 100 % nothing more is accepted.",
					unit:  units.PercentUnit, bad: .8,
					queries: ask("process_open_fds / process_max_fds"+ours, "{{job}} {{instance}}"),
				},
				{
					title:   "How long have they been running?",
					about:   "A line that falls to nothing is a restart.",
					unit:    units.Seconds,
					queries: ask("time() - process_start_time_seconds"+ours, "{{job}} {{instance}}"),
				},
			}},
		},
	}
}
