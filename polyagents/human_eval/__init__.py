"""Human evaluation: whole conversations side by side, and which speaker people would rather talk to.

After Li et al. 2019 (ACUTE-Eval, arXiv 1909.03087): conversations -> pairs -> judgements -> report.
"""
