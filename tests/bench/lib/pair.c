/* SPDX-License-Identifier: Apache-2.0 */
#include "pair.h"

/* Few rounds make no median; and an even number gives both sides each place as often. */
#define MIN_ROUNDS 4
#define MAX_ROUNDS 400

struct state {
	const struct pair_plan *plan;
	struct samples latency[N_SIDES];
	struct samples ratios;
	uint64_t client_ns;
};

static int run_round(struct state *st, unsigned round)
{
	const struct pair_plan *plan = st->plan;
	uint64_t batch_ns[N_SIDES];

	for (int i = 0; i < N_SIDES; i++) {
		enum side side = (enum side)((unsigned)i ^ (round & 1));
		uint64_t before_ns = bench_own_cpu_ns();
		int rc = plan->batch(plan->arg, side, &st->latency[side], &batch_ns[side]);

		if (rc)
			return rc;
		if (side == SIDE_OURS)
			st->client_ns += bench_own_cpu_ns() - before_ns;
	}
	samples_add(&st->ratios, (double)batch_ns[SIDE_RAW] / (double)batch_ns[SIDE_OURS]);
	return 0;
}

static void forget_warm_up(struct state *st)
{
	samples_clear(&st->latency[SIDE_OURS]);
	samples_clear(&st->latency[SIDE_RAW]);
	samples_clear(&st->ratios);
	st->client_ns = 0;
}

static int daemon_cpu_ns(pid_t pid, uint64_t *cpu_ns_out)
{
	*cpu_ns_out = 0;
	return pid ? bench_process_cpu_ns(pid, cpu_ns_out) : 0;
}

static int run_rounds(struct state *st, uint64_t *daemon_ns_out)
{
	const struct pair_plan *plan = st->plan;
	uint64_t daemon_before_ns, daemon_after_ns;
	int rc = run_round(st, 1);

	if (!rc)
		rc = daemon_cpu_ns(plan->daemon_pid, &daemon_before_ns);
	if (rc)
		return rc;
	forget_warm_up(st);

	uint64_t end_ns = bench_now_ns() + (uint64_t)(plan->budget_s * 1e9);
	for (unsigned round = 0; round < MAX_ROUNDS; round++) {
		if (round >= MIN_ROUNDS && !(round & 1) && bench_now_ns() >= end_ns)
			break;
		rc = run_round(st, round);
		if (rc)
			return rc;
	}
	rc = daemon_cpu_ns(plan->daemon_pid, &daemon_after_ns);
	if (!rc)
		*daemon_ns_out = daemon_after_ns - daemon_before_ns;
	return rc;
}

int pair_run(const struct pair_plan *plan, struct pair_result *result_out)
{
	struct state st = {.plan = plan};
	uint64_t daemon_ns = 0;
	int rc = run_rounds(&st, &daemon_ns);

	if (!rc)
		*result_out = (struct pair_result){
			.ratio = samples_quantile(&st.ratios, 0.5),
			.ours_p50_ns = samples_quantile(&st.latency[SIDE_OURS], 0.5),
			.raw_p50_ns = samples_quantile(&st.latency[SIDE_RAW], 0.5),
			.n_ours = st.latency[SIDE_OURS].n,
			.client_s = (double)st.client_ns / 1e9,
			.daemon_s = (double)daemon_ns / 1e9,
			.n_rounds = (unsigned)st.ratios.n,
		};
	samples_fini(&st.latency[SIDE_OURS]);
	samples_fini(&st.latency[SIDE_RAW]);
	samples_fini(&st.ratios);
	return rc;
}
