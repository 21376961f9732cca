package main

import "github.com/grafana/grafana-foundation-sdk/go/units"

// workers selects, of metrics that all processes have, those of workers.
const workers = " and on (job, instance) " + prefix + "worker_slots"

// queue is how the jobs get on, and whether there are enough workers.
func queue() board {
	return board{
		name:  "queue",
		title: "Sandbox provisioner: queue and workers",
		about: "How many jobs wait and for how long, what each worker does, and why jobs are tried again.",
		rows: []row{
			{"At a glance", []panel{
				{
					title: "Workers",
					about: "Processes that take jobs and are scraped. Without any, requests are queued and nothing happens.",
					unit:  units.Short, look: number, bad: 1, lowIsBad: true,
					queries: ask("sandbox_provisioner:workers:count", ""),
				},
				{
					title: "Jobs that no worker has taken",
					about: "More than a few for more than a moment: there are too few workers, or they cannot work.",
					unit:  units.Short, look: number,
					queries: ask("max("+series("queue_jobs_waiting", "")+")", ""),
				},
				{
					title: "Age of the oldest unfinished job",
					about: "A single job may be stuck behind a Pod that does not go; see how many wait.",
					unit:  units.Seconds, look: number, bad: 60,
					queries: ask("max("+series("queue_oldest_unfinished_age_seconds", "")+")", ""),
				},
				{
					title: "Workers' slots in use",
					about: "All slots in use: jobs wait for a worker and not for Kubernetes. Start more workers, or raise WORKER_CONCURRENCY.",
					unit:  units.PercentUnit, look: number, bad: .9,
					queries: ask("sum("+series("worker_slots_busy", "")+") / sum("+series("worker_slots", "")+")", ""),
				},
			}},
			{"Queue", []panel{
				{
					title: "How many jobs are there?",
					about: "waiting: not taken by any worker. in hand: being worked on, or waiting for another try. " +
						"handed out again: of those, taken more than once.",
					unit: units.Short,
					queries: []query{
						{"max(" + series("queue_jobs_waiting", "") + ")", "waiting"},
						{"max(" + series("queue_jobs_unacknowledged", "") + ")", "in hand"},
						{"max(" + series("queue_jobs_redelivered", "") + ")", "handed out again"},
					},
				},
				{
					title: "How old is the oldest unfinished job?",
					about: "All processes read the same queue; the largest answer counts. A job that grows old alone is stuck behind its own Pod.",
					unit:  units.Seconds, bad: 60,
					queries: ask("max("+series("queue_oldest_unfinished_age_seconds", "")+")", "age"),
				},
				{
					title:   "Can the queue be read?",
					about:   "Every process reads the numbers on the left now and then. While it cannot, they are missing.",
					unit:    units.CountsPerSecond,
					queries: rates("queue_readings_total", "", "result"),
				},
			}},
			{"Throughput", []panel{
				{
					title:   "How many jobs does each worker bring to an end?",
					about:   "Attempts that were not put off. Workers share one queue, so that they should do about the same.",
					unit:    units.CountsPerSecond,
					look:    stack,
					queries: rates("reconcile_duration_seconds_count", `result!="retried"`, "instance"),
				},
				{
					title:   "What becomes of the jobs?",
					about:   "Outcomes: present is a create, absent is a delete.",
					unit:    units.CountsPerSecond,
					queries: rates("outcomes_total", "", "op", "result"),
				},
				{
					title:   "How are attempts going?",
					about:   "An attempt that was superseded did what a newer request asked for.",
					unit:    units.CountsPerSecond,
					look:    stack,
					queries: rates("reconcile_duration_seconds_count", "", "op", "result"),
				},
				{
					title:   "How long does an attempt to create take?",
					about:   "Two writes to Kubernetes at the same time, and a record of the outcome.",
					unit:    units.Seconds,
					queries: quantiles("reconcile_duration_seconds", `op="present"`),
				},
				{
					title:   "How long does an attempt to delete take?",
					about:   "Two reads and two deletes.",
					unit:    units.Seconds,
					queries: quantiles("reconcile_duration_seconds", `op="absent"`),
				},
				{
					title:   "How many jobs are handed out again?",
					about:   `redelivered="true": a worker put the job off, or died with it.`,
					unit:    units.CountsPerSecond,
					queries: ask(perSecond("worker_deliveries_total", "", "redelivered"), "redelivered: {{redelivered}}"),
				},
			}},
			{"Retries", []panel{
				{
					title:   "Why are jobs tried again?",
					about:   "Terminating is ordinary: the sandbox of the same name is on its way out. The others are troubles of Kubernetes.",
					unit:    units.CountsPerSecond,
					queries: rates("retries_total", "", "op", "reason"),
				},
				{
					title:   "How many retries does a job cost?",
					about:   "Retries for each job that ended. Above 5 for long is a storm.",
					unit:    units.Short,
					bad:     5,
					queries: ask("sandbox_provisioner:retries:rate5m / (sandbox_provisioner:outcomes:rate5m > 0)", "retries"),
				},
				{
					title:   "Why do jobs fail?",
					about:   "Outcomes that failed, by reason, for every worker.",
					unit:    units.CountsPerSecond,
					queries: rates("outcomes_total", `result="failed"`, "instance", "reason"),
				},
			}},
			{"Saturation", []panel{
				{
					title:   "How busy is each worker?",
					about:   "Share of WORKER_CONCURRENCY in use. Jobs that wait for another try hold no slot.",
					unit:    units.PercentUnit,
					bad:     .9,
					queries: ask("sum by (instance) ("+series("worker_slots_busy", "")+") / sum by (instance) ("+series("worker_slots", "")+")", "{{instance}}"),
				},
				{
					title:   "How much CPU does each worker use?",
					about:   "1 is one core. A worker that has all of its limit is slow whatever the slots say.",
					unit:    "suffix: cores",
					queries: ask("rate(process_cpu_seconds_total[$__rate_interval])"+workers, "{{instance}}"),
				},
				{
					title:   "How long do workers wait for their own limit of requests?",
					about:   "Seconds of waiting in each second, over all workers. Nothing unless K8S_QPS is set; above 1 it is what holds jobs up.",
					unit:    units.Seconds,
					queries: ask("sum(rate("+series("kubernetes_client_throttle_seconds_sum", "")+"[$__rate_interval])"+workers+")", "waiting"),
				},
			}},
			{"Sweeps", []panel{
				{
					title:   "What was left over?",
					about:   "What the sweeps found and had repaired. It should be nothing: each find is worth a look at the logs.",
					unit:    units.Short,
					queries: ask("sum by (kind, action) (increase("+series("sweep_findings_total", "")+"[$__rate_interval]))", "{{kind}} {{action}}"),
				},
				{
					title:   "Do the sweeps run?",
					about:   "Sweeps that ended, by result. One every SWEEP_INTERVAL from each worker.",
					unit:    units.Short,
					queries: ask("sum by (result) (increase("+series("sweep_runs_total", "")+"[$__rate_interval]))", "{{result}}"),
				},
			}},
		},
	}
}
