"""Decode real prompts with a real model, and see what speculation gains.

Source: Leviathan et al., https://arxiv.org/abs/2211.17192.
Command: python scripts/run.py --config configs/generate.py
Time: 5 minutes on 2 CPU cores.
Expected there: greedy text equal to the autoregressive loop's; a speedup where
the answer repeats its prompt or itself (1.0 to 1.6), and no loss elsewhere.
"""

from ml_collections import config_dict


def get_config():
  """The experiment's fields; see experiments/generate.py."""
  return config_dict.create(
    experiment='generate',
    target='smollm2-135m',  # or hf:PATH_OR_REPO_ID, gguf:PATH
    drafter='ngram',  # or 'model'; 'unigram', 'bigram': counted in rollouts
    draft='',  # the model's name, or the folder of the rollouts
    draft_layers=(),  # layers of that model that the draft keeps; () is all
    ngram=dict(
      max_match=5,  # tokens, longest suffix that is looked up
      min_match=3,  # tokens; shorter ones are right too rarely to pay
    ),
    gamma=4,  # most drafts of a round; 0 is autoregressive
    stopping=dict(
      policy='fixed',  # heuristic, confidence, entropy, or cost_aware, which
      # measures this machine first
      threshold=0.3,  # least probability of a token that lets a draft go on
      scale=0.3,  # of the entropy, in the bound 1 - sqrt(scale * H(q))
      bound=0.5,  # least value of that bound
      explore=0.01,  # share of the time that cost_aware may lose by trying
      forgiven=1.5,  # first rejections that cost_aware overlooks
    ),
    rule='token',  # block, coupled, sample_match; lossy_lenient, ...
    lossy=dict(
      lenience=0.5,  # 1 is lossless
      epsilon=0.09,  # probability that is typical anywhere
      delta=0.3,  # factor of exp(-entropy)
      kl_budget=0.1,  # nats a position
    ),
    sampling=dict(
      temperature=0.0,  # 0 is greedy
      top_k=0,  # 0 keeps all
      top_p=1.0,  # 1 keeps all
      min_p=0.0,  # 0 keeps all
    ),
    prompts='',  # a JSON Lines file; '' is the built-in set
    max_prompts=0,  # 0 is all
    max_new_tokens=128,
    batch_size=1,
    seed=0,
    dtype='auto',  # float32 on CPU, bfloat16 on accelerators
    baseline=True,  # run the autoregressive loop too
  )
